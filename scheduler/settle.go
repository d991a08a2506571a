package scheduler

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// settle decides what follows the end of a forward stage and moves d there: the
// next stage, success, a rollback, or the final failure. It is pure but for d.
func settle(d *deploy.Deployment, result deploy.StageResult, now time.Time) error {
	cancel := cancelOf(d)
	failed, reason := failedStage(d)
	switch {
	case failed == "" && cancel != nil:
		// Cancelled between two stages: nothing failed, yet the rest must not run.
		return fall(d, deploy.Cancelled, "Cancelled by "+cancel.by, wantRollback(d, result, cancel), now)
	case failed == deploy.StageCancelled:
		return fall(d, deploy.Cancelled, cancelReason(cancel, reason), wantRollback(d, result, cancel), now)
	case failed == deploy.StageFailure:
		return fall(d, deploy.Failure, reason, wantRollback(d, result, cancel), now)
	case result.Status == deploy.StageExited, current(d.ForwardStages()) == nil:
		return d.Complete(deploy.Success, "Deployment completed successfully", now)
	}
	return startNext(d, now)
}

// fall ends the forward part with a rollback or without.
func fall(d *deploy.Deployment, outcome deploy.Status, reason string, rollback bool, now time.Time) error {
	if rollback {
		return d.BeginRollback(outcome, reason, now)
	}
	return d.Complete(outcome, reason, now)
}

// wantRollback reports whether a failed or cancelled deployment is rolled back:
// if it has rollback stages, something ran, nobody else's change would be
// undone, and the person who cancelled did not decide otherwise.
func wantRollback(d *deploy.Deployment, result deploy.StageResult, cancel *cancellation) bool {
	if len(d.RollbackStages()) == 0 || result.NoRollback {
		return false
	}
	return cancel == nil || !cancel.noRollback
}

// startNext starts the first forward stage that has not run.
func startNext(d *deploy.Deployment, now time.Time) error {
	next := current(d.ForwardStages())
	if next == nil {
		return d.Complete(deploy.Success, "Deployment completed successfully: it has no stages", now)
	}
	return d.StartStage(next.ID, now)
}

// current returns the first stage that has not ended, nil if all have.
func current(stages []deploy.Stage) *deploy.Stage {
	for i := range stages {
		if !stages[i].Status.Completed() {
			return &stages[i]
		}
	}
	return nil
}

// failedStage returns the status of the first forward stage that failed or was
// cancelled, with a reason naming it.
func failedStage(d *deploy.Deployment) (deploy.StageStatus, string) {
	for _, s := range d.ForwardStages() {
		if s.Status == deploy.StageFailure || s.Status == deploy.StageCancelled {
			return s.Status, fmt.Sprintf("Stage %s failed: %s", s.Name, s.StatusReason)
		}
	}
	return "", ""
}

func cancelReason(cancel *cancellation, reason string) string {
	if cancel == nil {
		return reason
	}
	return "Cancelled by " + cancel.by
}

// rollbackReason is the final reason of a deployment that was rolled back: why
// it fell, and whether the rollback worked.
func rollbackReason(d *deploy.Deployment) string {
	for _, s := range d.RollbackStages() {
		if s.Status != deploy.StageSuccess && s.Status != deploy.StageSkipped {
			return fmt.Sprintf("%s; the rollback failed too: %s; the cluster is in neither state", d.OutcomeReason, s.StatusReason)
		}
	}
	return fmt.Sprintf("%s; rolled back to commit %s", d.OutcomeReason, deploy.ShortHash(d.RunningCommit))
}
