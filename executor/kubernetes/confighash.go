package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// metaConfig is the stage metadata key of the workloads that the stage restarts
// because their configuration has changed: after a crash the configuration may be
// written, and only this tells that they are still to be restarted.
const metaConfig = deploy.MetaConfigChanges

// restarting stores which workloads are about to be restarted for that.
func (w *work) restarting(ctx context.Context, changes map[string]cluster.ConfigChange) error {
	text, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	return w.run.SaveMetadata(ctx, map[string]string{metaConfig: string(text)})
}

// restartsOf returns the workloads that a stage was about to restart.
func restartsOf(stage deploy.Stage) (changes map[string]cluster.ConfigChange, err error) {
	text := stage.Metadata[metaConfig]
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &changes); err != nil {
		return nil, fmt.Errorf("read what stage %s was about to restart: %w", stage.ID, err)
	}
	return changes, nil
}

// driftedSince returns since when the objects that differ from Git are known to, by key.
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

// undo returns, for a rollback, what the forward stages were about to restart,
// with what was so before the first of them.
func (w *work) undo() (map[string]cluster.ConfigChange, error) {
	if !w.run.Stage.Rollback {
		return nil, nil
	}
	all := map[string]cluster.ConfigChange{}
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
