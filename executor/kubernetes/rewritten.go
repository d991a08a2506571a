package kubernetes

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// The log warns after rewritesWarned rewritten applies in a row. They are counted in the
// newest rewritesRead rollout records of the workload.
const (
	rewritesWarned = 3
	rewritesRead   = 20
)

// noteRewrite sets rec.Rewritten if a mutating webhook or admission policy has rewritten
// the pod template that was just applied. It logs a warning if that happens on each apply,
// because then each apply replaces all pods.
func (w *work) noteRewrite(ctx context.Context, rec *deploy.Rollout, item deploy.InventoryItem) error {
	tried := rec.IntentDigest != "" && rec.IntentDigest != rec.TemplateDigest
	again := rec.LiveBefore != "" && rec.LiveBefore != rec.TemplateDigest && w.appliedBefore(item)
	if rec.Rewritten || !tried && !again {
		return nil
	}
	recorded, err := w.Store.Rollouts(ctx, store.RolloutQuery{Cluster: rec.Cluster, Workload: rec.Workload, Limit: rewritesRead})
	if err != nil {
		return err
	}
	applied := slices.DeleteFunc(recorded, func(r deploy.Rollout) bool {
		return r.External() || r.ID == rec.ID || r.TemplateDigest == "" || r.TemplateDigest == r.LiveBefore
	})
	// If the last apply had the same template, this one has only restored it.
	if rec.Rewritten = tried || len(applied) > 0 && applied[0].TemplateDigest != rec.TemplateDigest; !rec.Rewritten {
		return nil
	}
	times := 1 + slices.IndexFunc(append(applied, deploy.Rollout{}), func(r deploy.Rollout) bool { return !r.Rewritten })
	if times >= rewritesWarned {
		w.log.Infof("Warning: a mutating webhook or admission policy has rewritten the pod template of %s on each of the last %d applies: "+
			"an apply replaces all pods also when Git has not changed. Exclude the workload from it, or make it write the same value each time", rec.Workload, times)
	}
	return nil
}

// appliedBefore reports whether the last apply of a workload sent the same object with the
// same configuration. It returns false if the stage restarts workloads for changed
// configuration, or leaves fields to other managers.
func (w *work) appliedBefore(item deploy.InventoryItem) bool {
	if len(apply.Yielded(w.set.Spec.Drift)) > 0 || w.run.Stage.Metadata[metaConfig] != "" {
		return false
	}
	return slices.ContainsFunc(w.before, func(i deploy.InventoryItem) bool {
		return i.Object.Key() == item.Object.Key() && i.UID == item.UID && i.DesiredDigest == item.DesiredDigest && i.ConfigHash == item.ConfigHash
	})
}
