package store

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/c785c783/piped/piped/deploy"
)

// HeldApplications returns the applications with a hold, by ID, without deleted ones.
func (s *Store) HeldApplications(ctx context.Context) ([]deploy.Application, error) {
	apps, err := all(ctx, s, scanApplication, selectApplication+" WHERE hold <> '' AND deleted = FALSE ORDER BY id")
	return apps, s.fail(err, "list held applications")
}

// setHold stores the hold that d starts, or ends the hold that d replaces. The application is
// already locked.
func (t *tx) setHold(ctx context.Context, d *deploy.Deployment, n NewDeployment) error {
	kept := d.Trigger.Kind != deploy.OnCommit && d.Trigger.Kind != deploy.OnCommand
	if n.Hold == nil && kept {
		return nil
	}
	app, err := t.lockApplication(ctx, d.ApplicationID)
	if err != nil {
		return err
	}
	if n.Hold == nil {
		return t.putHold(ctx, app, nil, fmt.Sprintf("Deployment %s of commit %s", d.ID, d.Trigger.Commit.Short()))
	}
	hold := *n.Hold
	hold.Git = d.Git
	hold.DeploymentID, hold.Since, hold.Evaluated, hold.Previous = d.ID, d.CreatedAt, app.EvaluatedCommit, app.Hold
	if !n.KeepEvaluated {
		hold.Evaluated = hold.Head
	}
	return t.putHold(ctx, app, &hold, "")
}

// endHold updates the application's hold after the end of d. It locks the application.
func (t *tx) endHold(ctx context.Context, d *deploy.Deployment) error {
	app, err := t.lockApplication(ctx, d.ApplicationID)
	if err != nil {
		return err
	}
	next := app.Hold.AfterEnd(d.ID, d.Status)
	if next == app.Hold {
		return nil
	}
	return t.putHold(ctx, app, next, fmt.Sprintf("Deployment %s, which began it, was cancelled", d.ID))
}

// putHold stores the application's hold, nil for none, and publishes the changes. why is the
// reason for the end of a hold.
func (t *tx) putHold(ctx context.Context, app deploy.Application, hold *deploy.Hold, why string) error {
	if reflect.DeepEqual(app.Hold, hold) {
		return nil
	}
	text := ""
	if hold != nil {
		hold.Since, hold.Reason = milli(hold.Since), clean(hold.Reason)
		var err error
		if text, err = encode(hold); err != nil {
			return err
		}
	}
	t.events = append(t.events, holdEvents(app, hold, why, t.store.now())...)
	return t.updateApplication(ctx, app.ID, "hold = ?", text)
}

// holdEvents returns the events for the start or the end of a hold.
func holdEvents(app deploy.Application, hold *deploy.Hold, why string, at time.Time) []deploy.Event {
	event := func(kind deploy.EventType, h *deploy.Hold, reason string) []deploy.Event {
		return []deploy.Event{{
			Key: fmt.Sprintf("%s/%s/%s/%d", app.ID, kind, h.DeploymentID, toMilli(at)), Type: kind, ApplicationID: app.ID, At: at,
			Payload: deploy.EventPayload{Application: app.Name, Commit: &h.Commit, Reason: reason}.JSON(),
		}}
	}
	switch {
	case hold == nil:
		return event(deploy.EventReleased, app.Hold, fmt.Sprintf("It is no longer held at commit %s: %s", app.Hold.Commit.Short(), why))
	case app.Hold != nil && app.Hold.DeploymentID == hold.DeploymentID:
		return nil
	}
	return event(deploy.EventHeld, hold, hold.String())
}

// clear cancels the waiting deployments of d's application and requests the cancellation of
// the running ones. A running deployment is not rolled back if its rollback would only restore
// d's commit, since d does that.
func (t *tx) clear(ctx context.Context, d *deploy.Deployment) error {
	by := fmt.Sprintf("%s, who goes back to commit %s with deployment %s", d.Trigger.Commander, d.Trigger.Commit.Short(), d.ID)
	if _, err := t.endWaiting(ctx, d.ApplicationID, "", deploy.Cancelled, "Cancelled by "+by, d.ID, d.UpdatedAt); err != nil {
		return err
	}
	running, err := deployments(ctx, t, selectDeployment+" WHERE application_id = ? AND status = 'RUNNING' ORDER BY id", d.ApplicationID)
	if err != nil {
		return err
	}
	for _, r := range running {
		if _, err := t.insertCommand(ctx, deploy.Command{
			ID: uuid.NewString(), Type: deploy.CommandCancel, ApplicationID: d.ApplicationID, DeploymentID: r.ID,
			Commander: by, ForceNoRollback: r.RollsBackOnlyTo(d.Trigger.Commit.Hash), SupersededBy: d.ID,
		}); err != nil {
			return err
		}
	}
	return nil
}
