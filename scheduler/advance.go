package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// advance decides what follows the end of a forward stage and moves d there: the next
// stage, success, a rollback, or the final failure. It changes nothing but d.
func advance(d *deploy.Deployment, result deploy.StageResult, now time.Time) error {
	cancel := cancelOf(d)
	failed, reason := failedStage(d)
	switch {
	case failed == "" && cancel != nil:
		// Cancelled between two stages: nothing failed, but the remaining stages must not run.
		return endForward(d, deploy.Cancelled, "Cancelled by "+cancel.by, result, cancel, now)
	case failed == deploy.StageCancelled:
		return endForward(d, deploy.Cancelled, cancelReason(cancel, reason), result, cancel, now)
	case failed == deploy.StageFailure:
		d.SupersededBy = "" // it failed before the cancel took effect
		return endForward(d, deploy.Failure, reason, result, cancel, now)
	case len(d.ForwardStages()) == 0:
		return d.Complete(deploy.Success, "Deployment completed successfully: it has no stages", now)
	case result.Status == deploy.StageExited, current(d.ForwardStages()) == nil:
		return d.Complete(deploy.Success, "Deployment completed successfully", now)
	}
	return startNext(d, now)
}

// endForward ends the forward part with or without a rollback.
func endForward(d *deploy.Deployment, outcome deploy.Status, reason string, result deploy.StageResult, cancel *cancellation, now time.Time) error {
	rollback, note := decideRollback(d, result, cancel)
	if note != "" {
		reason += "; " + note
	}
	if rollback {
		return d.BeginRollback(outcome, reason, now)
	}
	return d.Complete(outcome, reason, now)
}

// decideRollback decides whether a failed or cancelled deployment is rolled back. The
// cancelling user's choice comes first, then the stage's NoRollback, then the
// application's configuration. The note explains a missing rollback where users may
// expect one.
func decideRollback(d *deploy.Deployment, result deploy.StageResult, cancel *cancellation) (rollback bool, note string) {
	switch {
	case !canUndo(d):
		return false, ""
	case cancel != nil && cancel.forceRollback:
		return true, ""
	case cancel != nil && cancel.noRollback:
		return false, "not rolled back, as asked"
	case result.NoRollback:
		return false, ""
	case d.NoAutoRollback:
		return false, "not rolled back, because automatic rollback is off; " + manualRollbackHint(d)
	}
	return true, ""
}

// manualRollbackHint explains how to roll back d manually.
func manualRollbackHint(d *deploy.Deployment) string {
	if d.RunningCommit == "" {
		return firstRollbackEffect(d, "are left", "have not run")
	}
	to := d.RunningDeploymentID
	if to == "" {
		to = d.RunningCommit
	}
	return fmt.Sprintf("to go back to commit %s: pipectl application rollback --app-id=%s --to=%s", deploy.ShortHash(d.RunningCommit), d.ApplicationID, to)
}

// firstRollbackEffect describes the effect of the rollback stages of a first
// deployment. Without an earlier success ROLLBACK only removes variants.
func firstRollbackEffect(d *deploy.Deployment, variants, scripts string) string {
	var parts []string
	stages := d.RollbackStages()
	isRollback := func(s deploy.Stage) bool { return s.Name == deploy.StageRollback }
	if slices.ContainsFunc(stages, isRollback) {
		parts = append(parts, "its canary and baseline "+variants)
	}
	if slices.ContainsFunc(stages, func(s deploy.Stage) bool { return !isRollback(s) }) {
		parts = append(parts, "its onRollback scripts "+scripts)
	}
	return strings.Join(parts, ", and ")
}

// nothingToUndo returns why a rollback stage is skipped: the stage that it undoes did
// not run. "" if it must run.
func nothingToUndo(d *deploy.Deployment, s *deploy.Stage) string {
	base := d.Stage(s.Metadata[deploy.MetaBaseStage])
	if base == nil || !base.StartedAt.IsZero() {
		return ""
	}
	return fmt.Sprintf("there is nothing to roll back: stage %s did not run", base.ID)
}

// canUndo reports whether any rollback stage of d would run.
func canUndo(d *deploy.Deployment) bool {
	for _, s := range d.RollbackStages() {
		if nothingToUndo(d, &s) == "" {
			return true
		}
	}
	return false
}

// startRollbackStage starts a rollback stage, or skips it if there is nothing to undo.
func startRollbackStage(d *deploy.Deployment, id string, now time.Time) error {
	if reason := nothingToUndo(d, d.Stage(id)); reason != "" {
		return d.FinishStage(id, deploy.StageSkipped, reason, now)
	}
	return d.StartStage(id, now)
}

// startNext starts the first forward stage that has not run. It finishes skipped
// stages. A stage with skipOn is left to run.startOrSkip. After the last stage it does
// nothing: completing d is a separate transition.
func startNext(d *deploy.Deployment, now time.Time) error {
	for {
		next := current(d.ForwardStages())
		switch {
		case next == nil:
			return nil
		case skipOf(next) != nil:
			if err := d.FinishStage(next.ID, deploy.StageSkipped, skipOf(next).reason(), now); err != nil {
				return err
			}
		case len(next.SkipOn) > 0:
			return nil
		default:
			return d.StartStage(next.ID, now)
		}
	}
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

// failedStage returns the status of the first failed or cancelled forward stage, with a
// reason that names it.
func failedStage(d *deploy.Deployment) (deploy.StageStatus, string) {
	for _, s := range d.ForwardStages() {
		if s.Status == deploy.StageFailure || s.Status == deploy.StageCancelled {
			return s.Status, fmt.Sprintf("Stage %s failed: %s", s.Name, s.StatusReason)
		}
	}
	return "", ""
}

// cancelReason returns the status reason of a deployment with a cancelled stage: reason,
// unless a user cancelled it.
func cancelReason(cancel *cancellation, reason string) string {
	if cancel == nil {
		return reason
	}
	return "Cancelled by " + cancel.by
}

// rollbackReason returns the final reason of a rolled back deployment: why it failed,
// and whether its changes and script effects were undone.
func rollbackReason(d *deploy.Deployment) string {
	reason := d.OutcomeReason + "; " + firstRollbackEffect(d, "are removed", "have run")
	if d.RunningCommit != "" {
		reason = fmt.Sprintf("%s; rolled back to commit %s", d.OutcomeReason, deploy.ShortHash(d.RunningCommit))
	}
	var scripts []string
	for _, s := range d.RollbackStages() {
		switch {
		case s.Status == deploy.StageSuccess, s.Status == deploy.StageSkipped:
		case s.Name == deploy.StageRollback:
			return fmt.Sprintf("%s; the rollback failed too: %s; the cluster may be in neither state", d.OutcomeReason, s.StatusReason)
		default:
			scripts = append(scripts, fmt.Sprintf("%s: %s", s.ID, s.StatusReason))
		}
	}
	if len(scripts) > 0 {
		reason += fmt.Sprintf(", but not all that scripts did was undone (%s): see the stage's log", strings.Join(scripts, "; "))
	}
	return reason
}
