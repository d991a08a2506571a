package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// processCommands executes and answers every open command of the scheduler. A command
// that fails for now does not delay the others.
func (s *Scheduler) processCommands(ctx context.Context) error {
	commands, err := s.Store.OpenCommands(ctx, deploy.CommandCancel, deploy.CommandSkipStage)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range commands {
		work, ok := s.rightTo(ctx, c)
		if !ok {
			continue
		}
		err := s.process(work.Context, c)
		work.Done()
		if deploy.IsKind(err, deploy.Fenced) {
			continue
		}
		if err != nil && !deploy.IsKind(err, deploy.Conflict) {
			errs = append(errs, fmt.Errorf("answer command %s (%s): %w", c.ID, c.Type, err))
		}
	}
	return errors.Join(errs...)
}

// rightTo returns the right to answer a command: that to the application, or to its deployment while
// that is being handed over.
func (s *Scheduler) rightTo(ctx context.Context, c deploy.Command) (ownership.Work, bool) {
	work, ok := s.Rights.Own(ctx, c.ApplicationID)
	if ok {
		return work, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[c.DeploymentID]; r != nil {
		return ownership.Work{Context: r.work.Context, Done: func() {}}, true
	}
	return work, false
}

// process executes c, or rejects it, and answers it. The effect is stored before the
// answer, so that a crash in between loses nothing.
func (s *Scheduler) process(ctx context.Context, c deploy.Command) error {
	d, err := s.Store.UpdateDeployment(ctx, c.DeploymentID, func(d *deploy.Deployment) error { return applyCommand(d, c, s.Now()) })
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return s.Store.FinishCommand(ctx, c.ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: err.Error()})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	r := s.runs[c.DeploymentID] // a run that begins later reads the effect from the store
	s.mu.Unlock()
	switch {
	case r == nil:
	case c.Type == deploy.CommandCancel:
		r.cancel()
	default:
		r.skip(c.StageID, skipOf(d.Stage(c.StageID)).reason())
	}
	return s.Store.FinishCommand(ctx, c.ID, deploy.CommandSucceeded, nil)
}

// applyCommand applies c to d. The error is Invalid or NotFound if c is impossible. It is
// idempotent: c may be repeated after a crash.
func applyCommand(d *deploy.Deployment, c deploy.Command, now time.Time) error {
	if c.Type == deploy.CommandCancel {
		return acceptCancel(d, c, now)
	}
	return acceptSkip(d, c)
}
