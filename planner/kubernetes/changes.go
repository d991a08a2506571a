package kubernetes

import (
	"encoding/json"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// Changes returns what a deployment that is planned, or would be, does to each object
// whose rendering differs: target is what it brings out, running what ran before, nil
// for a first deployment. They are ordered by kind, namespace and name. What the
// cluster holds is not asked.
func Changes(d deploy.Deployment, running, target *source.Source) []deploy.PlannedChange {
	var before []manifest.Object
	if running != nil {
		before = running.Objects
	}
	pruning := prunes(d, target.Config)
	var out []deploy.PlannedChange
	for _, diff := range manifest.Compare(before, target.Objects) {
		ref := diff.Ref()
		title := "--- " + ref.String() + "\n+++ " + ref.String() + "\n"
		out = append(out, deploy.PlannedChange{Object: ref, Action: actionOf(diff, pruning, target.Config), Diff: title + diff.Hunks()})
	}
	return out
}

func actionOf(diff manifest.Difference, pruning bool, cfg *config.Application) deploy.PlannedAction {
	switch {
	case diff.Before == nil:
		return deploy.PlannedCreate
	case diff.After != nil:
		return deploy.PlannedUpdate
	case !pruning || kept(*diff.Before, cfg):
		return deploy.PlannedLeave
	}
	return deploy.PlannedDelete
}

// kept reports whether pruning leaves an object alone.
func kept(o manifest.Object, cfg *config.Application) bool {
	kind := o.GetKind()
	return o.GetAnnotations()[manifest.AnnotationResourcePolicy] == manifest.ResourcePolicyKeep ||
		slices.Contains(kubernetes.PrunableKinds(), kind) && !slices.Contains(cfg.Kubernetes.PruneKinds, kind)
}

// prunes reports whether a stage of the deployment deletes what Git has no more. One
// that is not planned yet is taken for a quick sync.
func prunes(d deploy.Deployment, cfg *config.Application) bool {
	if len(d.Stages) == 0 {
		return cfg.Kubernetes.QuickSync.Prune
	}
	return slices.ContainsFunc(d.Stages, func(s deploy.Stage) bool {
		var options struct {
			Prune bool `json:"prune"`
		}
		return json.Unmarshal(s.Options, &options) == nil && options.Prune
	})
}
