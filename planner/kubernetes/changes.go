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

// Changes returns the effect of a planned or previewed deployment on each object whose
// rendering differs between running, the state before (nil for a first deployment), and
// target. They are ordered by kind, namespace and name. It does not read the cluster.
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

// actionOf returns what the deployment does with one object. An object that is no longer in
// Git is deleted only if the deployment prunes and nothing excludes the object.
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

// kept reports whether an object is excluded from pruning.
func kept(o manifest.Object, cfg *config.Application) bool {
	kind := o.GetKind()
	return o.GetAnnotations()[manifest.AnnotationResourcePolicy] == manifest.ResourcePolicyKeep ||
		slices.Contains(kubernetes.PrunableKinds(), kind) && !slices.Contains(kubernetes.SpecOf(cfg.Platform).PruneKinds, kind)
}

// prunes reports whether a stage of the deployment prunes. An unplanned deployment
// counts as a quick sync.
func prunes(d deploy.Deployment, cfg *config.Application) bool {
	if len(d.Stages) == 0 {
		return kubernetes.SpecOf(cfg.Platform).QuickSync.Prune
	}
	return slices.ContainsFunc(d.Stages, func(s deploy.Stage) bool {
		var options struct {
			Prune bool `json:"prune"`
		}
		return json.Unmarshal(s.Options, &options) == nil && options.Prune
	})
}
