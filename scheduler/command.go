package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// answerCommands answers every open command that the scheduler consumes. One
// that cannot be answered now keeps no other waiting.
func (s *Scheduler) answerCommands(ctx context.Context) error {
	commands, err := s.Store.OpenCommands(ctx, deploy.CommandCancel, deploy.CommandSkipStage)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range commands {
		if err := s.answer(ctx, c); err != nil && !deploy.IsKind(err, deploy.Conflict) {
			errs = append(errs, fmt.Errorf("answer command %s (%s): %w", c.ID, c.Type, err))
		}
	}
	return errors.Join(errs...)
}

// answer answers c: the deployment is given what c asks for, or c is refused.
// What was given is stored before the answer, so that a crash in between takes
// nothing back.
func (s *Scheduler) answer(ctx context.Context, c deploy.Command) error {
	d, err := s.Store.UpdateDeployment(ctx, c.DeploymentID, func(d *deploy.Deployment) error { return give(d, c, s.Now()) })
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return s.Store.FinishCommand(ctx, c.ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: err.Error()})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	r := s.runs[c.DeploymentID] // one that begins later reads from the store what was given
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

// give gives d what c asks for. Invalid or NotFound if that cannot be; c itself
// may come again after a crash.
func give(d *deploy.Deployment, c deploy.Command, now time.Time) error {
	if c.Type == deploy.CommandCancel {
		return acceptCancel(d, c, now)
	}
	return acceptSkip(d, c)
}
