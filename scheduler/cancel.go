package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Keys of Deployment.Metadata that hold the cancel a deployment was given. It is
// stored before the command is answered: what was promised survives a crash, and
// whether the cancel or the end of a stage came first is decided by the store.
const (
	metaCancelCommand    = "CancelCommandID"
	metaCancelledBy      = "CancelledBy"
	metaCancelNoRollback = "CancelWithoutRollback"
)

// cancellation is the cancel a deployment was given.
type cancellation struct {
	by         string
	noRollback bool
}

// cancelOf returns the cancel d was given, nil if none.
func cancelOf(d *deploy.Deployment) *cancellation {
	if d.Metadata[metaCancelCommand] == "" {
		return nil
	}
	return &cancellation{by: d.Metadata[metaCancelledBy], noRollback: d.Metadata[metaCancelNoRollback] != ""}
}

// accept gives d the cancel c: one that has not started ends at once, a running
// one ends with its stage. Invalid if it is too late. The first cancel decides;
// c itself may come again after a crash.
func accept(d *deploy.Deployment, c deploy.Command, now time.Time) error {
	switch {
	case d.Metadata[metaCancelCommand] == c.ID:
		return nil
	case d.Status == deploy.RollingBack:
		return deploy.Errorf(deploy.Invalid, "the deployment is rolling back already and cannot be cancelled")
	case d.Status.Completed():
		return deploy.Errorf(deploy.Invalid, "the deployment is %s already and cannot be cancelled", d.Status)
	case cancelOf(d) != nil:
		return nil
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	d.Metadata[metaCancelCommand], d.Metadata[metaCancelledBy] = c.ID, c.Commander
	if c.ForceNoRollback {
		d.Metadata[metaCancelNoRollback] = "true"
	}
	if d.Status == deploy.Running {
		return nil
	}
	return d.Complete(deploy.Cancelled, "Cancelled by "+c.Commander+" before it started", now)
}

// answerCancels answers every open cancel command.
func (s *Scheduler) answerCancels(ctx context.Context) error {
	commands, err := s.Store.OpenCommands(ctx, deploy.CommandCancel)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if err := s.cancel(ctx, c); err != nil && !deploy.IsKind(err, deploy.Conflict) {
			return err
		}
	}
	return nil
}

// cancel answers c: the deployment is given the cancel, or c is refused.
func (s *Scheduler) cancel(ctx context.Context, c deploy.Command) error {
	_, err := s.Store.UpdateDeployment(ctx, c.DeploymentID, func(d *deploy.Deployment) error { return accept(d, c, s.Now()) })
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return s.Store.FinishCommand(ctx, c.ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: err.Error()})
	}
	if err != nil {
		return fmt.Errorf("cancel deployment %s: %w", c.DeploymentID, err)
	}
	s.mu.Lock()
	r := s.runs[c.DeploymentID] // one that begins later reads the cancel from the store
	s.mu.Unlock()
	if r != nil {
		r.cancel()
	}
	return s.Store.FinishCommand(ctx, c.ID, deploy.CommandSucceeded, nil)
}
