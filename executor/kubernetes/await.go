package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes/rollout"
	"github.com/c785c783/piped/piped/store"
)

// await waits until every rollout of the set has ended. It fails with a
// stageError unless all of them ended well.
func await(ctx context.Context, w *work) error {
	if len(w.rollouts) == 0 {
		return nil
	}
	ended, err := rollout.Wait(ctx, rollout.Request{
		Records: w.records(), Observer: w.cluster.Rollouts, Policy: w.policy(), Save: w.saveEnd,
		Progress: func(line string) { w.log.Infof("%s", line) }, Now: w.Now,
	})
	if err != nil {
		return err
	}
	return judge(ended)
}

// records returns the rollout records in a stable order.
func (w *work) records() []deploy.Rollout {
	var out []deploy.Rollout
	for _, obj := range w.set.Objects {
		if rec := w.record(obj); rec.Phase != "" {
			out = append(out, rec)
		}
	}
	return out
}

// policy is the agent's with what the application sets.
func (w *work) policy() rollout.Policy {
	p := w.Policy
	p.ReadyThreshold, p.Strict, p.NoFailFast = w.set.Spec.ReadyThreshold, w.set.Spec.Strict, !w.set.Spec.FailFast
	return p
}

// saveEnd stores a record, and says in the stage's log when it ended well.
// After a lost race it returns the stored one.
func (w *work) saveEnd(ctx context.Context, rec deploy.Rollout) (deploy.Rollout, error) {
	saved, err := w.Store.SaveRollout(ctx, rec)
	switch {
	case err == nil && saved.Phase == deploy.RolloutComplete:
		w.log.Successf("%s: rollout complete after %s", saved.Workload, saved.CompletedAt.Sub(saved.AppliedAt).Round(10*time.Millisecond))
	case err == nil && saved.Phase == deploy.RolloutNoRollout:
		w.log.Infof("%s: nothing to roll out", saved.Workload)
	}
	if !deploy.IsKind(err, deploy.Conflict) {
		return saved, err
	}
	stored, readErr := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: rec.DeploymentID, StageID: rec.StageID})
	if readErr != nil {
		return rec, readErr
	}
	for _, s := range stored {
		if s.ID == rec.ID {
			return s, err
		}
	}
	return rec, err
}

// stageError ends a stage and says whether a rollback may follow.
type stageError struct {
	reason     string
	noRollback bool // nothing was done, or somebody else's change would be undone
}

func (e *stageError) Error() string { return e.reason }

// judge decides what the ends of the rollouts mean for the stage. One that
// failed counts more than one that somebody else took over.
func judge(ended []deploy.Rollout) error {
	var failed, foreign []string
	for _, rec := range ended {
		switch rec.Phase {
		case deploy.RolloutComplete, deploy.RolloutNoRollout:
		case deploy.RolloutFailed, deploy.RolloutTimedOut:
			failed = append(failed, ending(rec))
		default:
			foreign = append(foreign, ending(rec))
		}
	}
	switch {
	case len(failed) > 0:
		return &stageError{reason: strings.Join(failed, "; ")}
	case len(foreign) > 0:
		return &stageError{reason: strings.Join(foreign, "; "), noRollback: true}
	}
	return nil
}

// ending says of which workload a reason is; the reason may begin with its name.
func ending(rec deploy.Rollout) string {
	return fmt.Sprintf("%s: %s", rec.Workload, strings.TrimPrefix(rec.Reason, rec.Workload.Name+": "))
}

// failure makes a stage's result of the error that ended it.
func failure(err error) deploy.StageResult {
	result := deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
	var r *stageError
	if errors.As(err, &r) {
		result.NoRollback = r.noRollback
	}
	return result
}
