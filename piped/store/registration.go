package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// AddApplication registers an application, enabled, with the name, kind, Git path, provider,
// description, labels, sync state and registration of a. A deleted application is restored
// with its history but without its evaluated commit, so that the head is deployed as for a new
// one. Exists if an application that is not deleted has that ID or location. Illegal while its
// objects are being deleted.
func (s *Store) AddApplication(ctx context.Context, a deploy.Application) error {
	if err := checkIdentity(a); err != nil {
		return err
	}
	err := s.write(ctx, func(t *tx) error {
		if err := t.checkPlaceFree(ctx, a); err != nil {
			return err
		}
		inserted, err := t.insertApplication(ctx, a)
		if err == nil && !inserted {
			err = t.restore(ctx, a)
		}
		if err != nil {
			return err
		}
		return t.register(ctx, a.ID, a.Registration)
	})
	return s.fail(err, "add application "+a.ID)
}

// checkPlaceFree returns an error of kind Exists if another application has the location of a.
func (t *tx) checkPlaceFree(ctx context.Context, a deploy.Application) error {
	places, err := placesOf(ctx, t, a.Git.RepoID)
	if err != nil {
		return err
	}
	holder, ok := places.At(a.Git)
	if !ok || holder.Deleted || holder.ID == a.ID {
		return nil
	}
	return deploy.Errorf(deploy.Exists, "%s of repository %s is application %s already: delete that one first, then add the place again with the ID to keep",
		a.Git.ConfigPath(), a.Git.RepoID, holder.ID)
}

// restore restores a deleted application with the values of a.
func (t *tx) restore(ctx context.Context, a deploy.Application) error {
	old, err := t.lockApplication(ctx, a.ID)
	if err != nil {
		return err
	}
	if !old.Deleted {
		return deploy.Errorf(deploy.Exists, "application %s exists already", a.ID)
	}
	if err := t.checkNotRemoving(ctx, a.ID); err != nil {
		return err
	}
	if _, err := t.updateSpec(ctx, a); err != nil {
		return err
	}
	a.Sync.At = milli(a.Sync.At)
	sync, err := encode(a.Sync)
	if err != nil {
		return err
	}
	return t.updateApplication(ctx, a.ID, `deleted = FALSE, deleted_at = 0, disabled = FALSE, evaluated_commit = '',
		notice = '', notice_at = 0, hold = '', sync_status = ?, sync_state = ?`, string(a.Sync.Status), sync)
}

// register stores the registration of an application.
func (t *tx) register(ctx context.Context, id string, r deploy.Registration) error {
	r.At = milli(r.At)
	text, err := encode(r)
	if err != nil {
		return err
	}
	t.changed(deploy.TopicRegistration, id, id)
	return t.updateApplication(ctx, id, "registration = ?", text)
}

// SetRegisteredProvider replaces the platform provider with which an application was
// registered; "" removes it. NotFound if there is no such application or it is deleted.
func (s *Store) SetRegisteredProvider(ctx context.Context, id, provider string) error {
	err := s.write(ctx, func(t *tx) error {
		app, err := t.lockPresent(ctx, id)
		if err != nil || app.Registration.Provider == provider {
			return err
		}
		app.Registration.Provider = provider
		return t.register(ctx, id, app.Registration)
	})
	return s.fail(err, "set the platform provider of application "+id)
}

// SetDisabled disables or enables an application. Nothing is triggered for a disabled
// application; its waiting deployments end as FAILURE, running ones continue. If a waiting
// deployment was triggered by a commit, the evaluated commit is reset to that of the last
// success, so that the commit is deployed once the application is enabled. NotFound if there
// is no such application or it is deleted.
func (s *Store) SetDisabled(ctx context.Context, id string, disabled bool) error {
	err := s.write(ctx, func(t *tx) error {
		app, err := t.lockPresent(ctx, id)
		if err != nil || app.Disabled == disabled {
			return err
		}
		if disabled {
			if err := t.endDisabled(ctx, app); err != nil {
				return err
			}
		}
		t.changed(deploy.TopicRegistration, id, id)
		return t.updateApplication(ctx, id, "disabled = ?", disabled)
	})
	return s.fail(err, "disable or enable application "+id)
}

// endDisabled ends the waiting deployments of an application that is being disabled.
func (t *tx) endDisabled(ctx context.Context, app deploy.Application) error {
	ended, err := t.endWaiting(ctx, app.ID, "", deploy.Failure, "The application was disabled before the deployment started", "", t.store.now())
	if err != nil {
		return err
	}
	for _, d := range ended {
		if d.Trigger.Kind != deploy.OnCommit {
			continue
		}
		evaluated := ""
		if app.LastSuccessful != nil {
			evaluated = app.LastSuccessful.Trigger.Commit.Hash
		}
		return t.updateApplication(ctx, app.ID, "evaluated_commit = ?", evaluated)
	}
	return nil
}

// DeleteApplication marks an application as deleted. It remains stored with its history, but
// is not listed until AddApplication. Waiting deployments become CANCELLED, running ones
// continue. NotFound if there is no such application or it is deleted.
func (s *Store) DeleteApplication(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.lockPresent(ctx, id); err != nil {
			return err
		}
		return t.unregister(ctx, id)
	})
	return s.fail(err, "delete application "+id)
}

// lockPresent is lockApplication for an application that is not deleted.
func (t *tx) lockPresent(ctx context.Context, id string) (deploy.Application, error) {
	app, err := t.lockApplication(ctx, id)
	if err == nil && app.Deleted {
		err = deploy.Errorf(deploy.NotFound, "application %s is deleted", id)
	}
	return app, err
}

// mayDeploy returns an error of kind Illegal for a deleted or disabled application.
func mayDeploy(app deploy.Application) error {
	switch {
	case app.Deleted:
		return deploy.Errorf(deploy.Illegal, "application %s is deleted: add it again first", app.ID)
	case app.Disabled:
		return deploy.Errorf(deploy.Illegal, "application %s is disabled: enable it first", app.ID)
	}
	return nil
}
