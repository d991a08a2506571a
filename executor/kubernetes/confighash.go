package kubernetes

import (
	"cmp"
	"context"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
)

// metaConfig is the stage metadata key of the workloads that the stage restarts because
// their configuration has changed. After a crash the new configuration may already be
// written. Then only this record shows which workloads still have to be restarted.
const metaConfig = deploy.MetaConfigChanges

// restartsOf returns the workloads that a stage was about to restart.
func restartsOf(stage deploy.Stage) (changes map[string]apply.ConfigChange, err error) {
	_, err = readMetadata(stage, metaConfig, &changes)
	return changes, err
}

// driftedSince returns when objects were first found to differ from Git, by key of the
// object.
func (w *work) driftedSince(ctx context.Context) (map[string]time.Time, error) {
	report, err := w.Store.DriftReport(ctx, w.run.Application.ID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil, nil
	}
	since := map[string]time.Time{}
	for _, o := range report.Objects {
		if cmp.Or(o.Cluster, report.Cluster) == w.cluster.Name() {
			since[o.Object.Key()] = o.BeganAt
		}
	}
	return since, err
}

// undo returns, for a rollback, the workloads that the forward stages were about to
// restart, by key and with their first change. For other stages it returns nil.
func (w *work) undo() (map[string]apply.ConfigChange, error) {
	if !w.run.Stage.Rollback {
		return nil, nil
	}
	all := map[string]apply.ConfigChange{}
	for _, stage := range w.run.Deployment.ForwardStages() {
		changes, err := restartsOf(stage)
		if err != nil {
			return nil, err
		}
		for key, change := range changes {
			if _, ok := all[key]; !ok {
				all[key] = change
			}
		}
	}
	return all, nil
}
