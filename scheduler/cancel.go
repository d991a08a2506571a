package scheduler

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Keys of Deployment.Metadata that hold an accepted cancel request, in addition to
// deploy.MetaCancelledBy. It is stored before the command is answered, so that it
// survives a crash. The store decides whether the cancel or the end of a stage came
// first.
const (
	metaCancelCommand      = "CancelCommandID"
	metaCancelNoRollback   = "CancelWithoutRollback"
	metaCancelWithRollback = "CancelWithRollback"
)

// cancellation is an accepted cancel request.
type cancellation struct {
	by string
	// The user's choice about the rollback; at most one is true.
	forceRollback, noRollback bool
}

// cancelOf returns d's cancel request, nil if there is none.
func cancelOf(d *deploy.Deployment) *cancellation {
	if d.Metadata[metaCancelCommand] == "" {
		return nil
	}
	return &cancellation{
		by:            d.Metadata[deploy.MetaCancelledBy],
		forceRollback: d.Metadata[metaCancelWithRollback] != "", noRollback: d.Metadata[metaCancelNoRollback] != "",
	}
}

// acceptCancel records the cancel request c in d. A deployment that has not started
// completes at once; a running one stops its stage. The first request takes effect. The
// error is Invalid if c is too late or contradictory.
func acceptCancel(d *deploy.Deployment, c deploy.Command, now time.Time) error {
	if d.Metadata[metaCancelCommand] == c.ID {
		return nil
	}
	if err := validateCancel(d, c); err != nil || cancelOf(d) != nil {
		return err
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	d.Metadata[metaCancelCommand], d.Metadata[deploy.MetaCancelledBy] = c.ID, c.Commander
	d.SupersededBy = c.SupersededBy
	switch {
	case c.ForceRollback:
		d.Metadata[metaCancelWithRollback] = "true"
	case c.ForceNoRollback:
		d.Metadata[metaCancelNoRollback] = "true"
	}
	if d.Status == deploy.Running {
		return nil
	}
	return d.Complete(deploy.Cancelled, "Cancelled by "+c.Commander+" before it started", now)
}

// validateCancel returns why d rejects the cancel request c. A repetition of an
// accepted request is valid.
func validateCancel(d *deploy.Deployment, c deploy.Command) error {
	earlier := cancelOf(d)
	switch {
	case c.ForceRollback && c.ForceNoRollback:
		return deploy.Errorf(deploy.Invalid, "a cancel cannot both force and forbid the rollback: give one of the two")
	case d.Status == deploy.RollingBack:
		return deploy.Errorf(deploy.Invalid, "the deployment is rolling back already and cannot be cancelled: wait for its end")
	case d.Status.Completed():
		return deploy.Errorf(deploy.Invalid, "the deployment is %s already and cannot be cancelled", d.Status)
	case earlier != nil && (earlier.forceRollback != c.ForceRollback || earlier.noRollback != c.ForceNoRollback):
		return deploy.Errorf(deploy.Invalid, "%s has cancelled the deployment already and decided otherwise about the rollback: the first cancel counts", earlier.by)
	case d.Status == deploy.Running && c.ForceRollback && !canUndo(d):
		return deploy.Errorf(deploy.Invalid, "the deployment has nothing to roll back: cancel it without forcing a rollback")
	}
	return nil
}
