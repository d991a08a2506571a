package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/c785c783/piped/piped/deploy"
)

// RemoveApplication deletes an application, like DeleteApplication, by a
// CommandDeleteApplication, which is stored in the same transaction and returned as stored.
//
// Without c.Cascade the command is completed at once; NotFound if the application is deleted.
// With c.Cascade the command stays open until FinishRemoval. Its metadata contains the number
// of objects in the inventory, and the application cannot be added again meanwhile. Illegal if
// the application has an active deployment or is being removed already; NotFound if it is
// deleted and its inventory is empty.
func (s *Store) RemoveApplication(ctx context.Context, c deploy.Command) (deploy.Command, error) {
	var stored deploy.Command
	err := s.write(ctx, func(t *tx) (err error) {
		stored, err = t.removeApplication(ctx, c)
		return err
	})
	if err != nil {
		return deploy.Command{}, s.fail(err, "delete application "+c.ApplicationID)
	}
	return stored, nil
}

func (t *tx) removeApplication(ctx context.Context, c deploy.Command) (deploy.Command, error) {
	app, err := t.lockApplication(ctx, c.ApplicationID)
	if err != nil {
		return c, err
	}
	if c.Cascade {
		if c.Metadata, err = t.checkRemovable(ctx, app); err != nil {
			return c, err
		}
	}
	if !app.Deleted {
		err = t.unregister(ctx, app.ID)
	} else if !c.Cascade {
		err = deploy.Errorf(deploy.NotFound, "application %s is deleted", app.ID)
	}
	if err != nil {
		return c, err
	}
	if c, err = t.insertCommand(ctx, c); err != nil || c.Cascade {
		return c, err
	}
	if err := t.finishCommand(ctx, c.ID, deploy.CommandSucceeded, nil); err != nil {
		return c, err
	}
	c, _, err = one(ctx, t, scanCommand, selectCommand+" WHERE id = ?", c.ID)
	return c, err
}

// checkRemovable returns an error if the application is being deployed or removed, otherwise
// the metadata about its inventory.
func (t *tx) checkRemovable(ctx context.Context, app deploy.Application) (map[string]string, error) {
	if err := t.checkNotRemoving(ctx, app.ID); err != nil {
		return nil, err
	}
	active, _, err := one(ctx, t, scanText, `SELECT id FROM deployments WHERE application_id = ? AND status IN ('PLANNED', 'RUNNING', 'ROLLING_BACK')`, app.ID)
	if err != nil {
		return nil, err
	}
	if active != "" {
		return nil, deploy.Errorf(deploy.Illegal, "deployment %s of application %s is active: wait for its end, or cancel it, before its objects are deleted", active, app.ID)
	}
	n, _, err := one(ctx, t, scanNumber, "SELECT COUNT(*) FROM inventory WHERE application_id = ?", app.ID)
	if err == nil && app.Deleted && n == 0 {
		err = deploy.Errorf(deploy.NotFound, "application %s is deleted, and nothing is left that was applied for it", app.ID)
	}
	return map[string]string{deploy.MetaApplied: strconv.FormatInt(n, 10)}, err
}

// checkNotRemoving returns an error if the application's objects are being deleted.
func (t *tx) checkNotRemoving(ctx context.Context, id string) error {
	command, ok, err := one(ctx, t, scanText, "SELECT id FROM commands WHERE status = 'NOT_HANDLED_YET' AND type = ? AND application_id = ?",
		string(deploy.CommandDeleteApplication), id)
	if err == nil && ok {
		err = deploy.Errorf(deploy.Illegal, "the objects of application %s are being deleted: wait until command %s is answered", id, command)
	}
	return err
}

// unregister marks an application as deleted and ends its waiting deployments.
func (t *tx) unregister(ctx context.Context, id string) error {
	now := t.store.now()
	if _, err := t.endWaiting(ctx, id, "", deploy.Cancelled, "The application was deleted before the deployment started", "", now); err != nil {
		return err
	}
	if _, err := t.exec(ctx, "DELETE FROM adoptions WHERE application_id = ?", id); err != nil {
		return err
	}
	t.changed(deploy.TopicRegistration, id, id)
	return t.updateApplication(ctx, id, "deleted = TRUE, deleted_at = ?, notice = '', notice_at = 0, hold = ''", toMilli(now))
}

// FinishRemoval completes a CommandDeleteApplication and deletes the inventory entries in
// over, such as objects that belong to another application now or have no UID. After a success
// it also deletes the reference to the last success: nothing of it runs, and there is no
// commit to roll back to. Conflict if the command was completed before.
func (s *Store) FinishRemoval(ctx context.Context, c deploy.Command, status deploy.CommandStatus, metadata map[string]string, over []deploy.InventoryItem) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.lockApplication(ctx, c.ApplicationID); err != nil {
			return err
		}
		for _, item := range over {
			if err := t.deleteInventory(ctx, c.ApplicationID, item.Cluster, item.Object); err != nil {
				return err
			}
		}
		if status == deploy.CommandSucceeded {
			if err := t.updateApplication(ctx, c.ApplicationID, "last_successful = '', last_successful_id = ''"); err != nil {
				return err
			}
		}
		return t.finishCommand(ctx, c.ID, status, metadata)
	})
	return s.fail(err, fmt.Sprintf("finish command %s", c.ID))
}
