package opentofu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Run does what is left after stages have ended: it answers the requests to release a lock for
// which no stage waits, and reads the states that could not be read after an apply. It returns when
// ctx ends.
func (e *Executor) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { e.readUnread(ctx) })
	background.Answer(ctx, e.Store.Watch(deploy.TopicCommand, deploy.TopicDeployment), e.ScanEvery, e.answerLate, func(err error) {
		e.Logger.Error("cannot answer the requests to release a lock; trying again", "error", err)
	})
	return nil
}

// answerLate fails the requests to release a lock of deployments that run no stage which could wait
// for one, and returns how many stay open. They may have arrived after the stage's last look.
func (e *Executor) answerLate(ctx context.Context) (open int, err error) {
	commands, err := e.Store.OpenCommands(ctx, deploy.CommandReleaseStateLock)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, c := range commands {
		d, err := e.Store.Deployment(ctx, c.DeploymentID)
		reason := fmt.Sprintf("deployment %s does not wait for a lock", c.DeploymentID)
		switch {
		case deploy.IsKind(err, deploy.NotFound):
			reason = err.Error()
		case err != nil:
			errs = append(errs, err)
			open++
			continue
		case d.UsesState():
			open++
			continue
		}
		err = e.Store.FinishCommand(ctx, c.ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: reason})
		if err != nil && !deploy.IsKind(err, deploy.Conflict) { // another executor has answered
			errs = append(errs, err)
			open++
		}
	}
	return open, errors.Join(errs...)
}

// listEvery is the interval in which all applications are checked, as a fallback for missed changes.
const listEvery = 5 * time.Minute

// readUnread reads the states that could not be read after the last apply of their applications, in
// this process or an earlier one: of all applications at the start, then of each whose deployment
// ends. What fails is repeated with backoff. It returns when ctx ends.
func (e *Executor) readUnread(ctx context.Context) {
	queue := background.NewQueue()
	background.Loop{
		Queue: queue, Workers: 1, ScanEvery: listEvery,
		Scan: func(ctx context.Context) {
			apps, _, err := e.Store.ListApplications(ctx, store.ApplicationQuery{Kind: e.Kind})
			if err != nil && ctx.Err() == nil {
				e.Logger.Error("cannot read whose state was not read after an apply; trying again", "error", err)
			}
			for _, app := range apps {
				queue.Add(app.ID)
			}
		},
		Changed: func(_ context.Context, changes []deploy.Change) {
			for _, c := range changes {
				if c.Status == "" || c.Status.Completed() {
					queue.Add(c.ApplicationID)
				}
			}
		},
		Handle: e.readLate,
		Failed: func(id string, err error) {
			e.Logger.Warn("cannot read the state after an apply; trying again", "appID", id, "error", err)
		},
	}.Run(ctx, e.Store.Watch(deploy.TopicDeployment))
}

// readLate reads the state of an application if it could not be read after its last apply. The end
// of a deployment that runs checks it again.
func (e *Executor) readLate(ctx context.Context, id string) error {
	app, err := e.Store.Application(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		return nil
	case err != nil:
		return err
	case app.Kind != e.Kind || app.Deploying || app.LastSuccessful == nil:
		return nil
	}
	return e.readAgain(ctx, app)
}

// readAgain reads the state of an application if it could not be read after the last apply.
func (e *Executor) readAgain(ctx context.Context, app deploy.Application) error {
	last := *app.LastSuccessful
	if kept, err := e.record(ctx, last.DeploymentID); err != nil || !kept.Unread {
		return err
	}
	limited, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	at, commit := last.At(app.Git), last.Trigger.Commit.Hash
	s, err := e.open(limited, app.Kind, app.Provider, at, commit, silence{})
	if err != nil {
		return err
	}
	return initialized(limited, s, func() error {
		defer e.recording(app.ID)()
		kept, err := e.record(ctx, last.DeploymentID)
		if err != nil || !kept.Unread { // a deployment has read it meanwhile
			return err
		}
		state, err := s.State(limited)
		if err != nil {
			return err
		}
		kept.State, kept.Unread = redacted(state, s.redactor.Text), false
		d := deploy.Deployment{ID: last.DeploymentID, ApplicationID: app.ID, Provider: app.Provider, Git: at}
		if err := e.putInventory(ctx, d, *kept.State); err != nil {
			return err
		}
		if err := e.save(ctx, deploy.AppliedSet{ApplicationID: app.ID, DeploymentID: last.DeploymentID, Commit: commit}, kept); err != nil {
			return err
		}
		e.Applied(app.ID)
		return nil
	})
}

// readTimeout bounds one attempt to read a state.
const readTimeout = 5 * time.Minute
