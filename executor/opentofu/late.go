package opentofu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Run does what is left after stages have ended: it answers the requests to release a lock for
// which no stage waits, and reads the states that could not be read after an apply. It returns when
// ctx ends.
func (e *Executor) Run(ctx context.Context) error {
	watch := e.Store.Watch(deploy.TopicCommand, deploy.TopicDeployment)
	defer watch.Close()
	scan := time.NewTicker(e.ScanEvery)
	defer scan.Stop()
	read := map[string]string{} // by application, the deployments since which its state was read
	open := 0
	for answer, look := true, true; ; {
		var err error
		if answer {
			open, err = e.answerLate(ctx)
		}
		if look {
			err = errors.Join(err, e.readLate(ctx, read))
		}
		if err != nil && ctx.Err() == nil {
			e.Logger.Error("cannot finish what stages have left; trying again", "error", err)
		}
		answer, look = true, false
		select {
		case <-ctx.Done():
			return nil
		case <-scan.C:
			look = true
		case <-watch.C():
			changes := watch.Take() // also while requests are open: a watch keeps what is not taken
			answer = open > 0 || slices.ContainsFunc(changes, func(c deploy.Change) bool { return c.Topic == deploy.TopicCommand })
		}
	}
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

// readLate reads the states that could not be read after the last apply of their applications. It
// notes in read of which it knows that they were read.
func (e *Executor) readLate(ctx context.Context, read map[string]string) error {
	apps, _, err := e.Store.ListApplications(ctx, store.ApplicationQuery{Kind: e.Kind})
	if err != nil {
		return err
	}
	for _, app := range apps {
		if app.Deploying || app.LastSuccessful == nil || app.LastTriggered == nil {
			continue
		}
		since := app.LastSuccessful.DeploymentID + " " + app.LastTriggered.DeploymentID
		if read[app.ID] == since {
			continue
		}
		if err := e.readAgain(ctx, app); err != nil {
			if ctx.Err() != nil {
				return err
			}
			e.Logger.Warn("cannot read the state after an apply; trying again", "app", app.Name, "error", err)
			continue
		}
		read[app.ID] = since
	}
	return nil
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
