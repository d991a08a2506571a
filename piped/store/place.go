package store

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Places returns the applications of a repository by location, including deleted ones.
func (s *Store) Places(ctx context.Context, repoID string) (deploy.Places, error) {
	places, err := placesOf(ctx, s, repoID)
	return places, s.fail(err, "read the places of repository "+repoID)
}

// ApplicationAt returns the application at a location, deleted or not. NotFound if there is
// none. It reads one row if the ID derives from the location.
func (s *Store) ApplicationAt(ctx context.Context, at deploy.GitPath) (deploy.Application, error) {
	app, ok, err := one(ctx, s, scanApplication, selectApplication+" WHERE id = ?", deploy.ApplicationID(at))
	if err == nil && (!ok || app.Deleted || app.Git.Place() != at.Place()) {
		var places deploy.Places
		places, err = placesOf(ctx, s, at.RepoID)
		app, ok = places.At(at)
	}
	if err == nil && !ok {
		err = deploy.Errorf(deploy.NotFound, "there is no application at %s of repository %s", at.ConfigPath(), at.RepoID)
	}
	return app, s.fail(err, "read the application at "+at.ConfigPath())
}

func placesOf(ctx context.Context, q querier, repoID string) (deploy.Places, error) {
	apps, err := all(ctx, q, scanApplication, selectApplication+" WHERE repo_id = ?", repoID)
	return deploy.NewPlaces(slices.Values(apps)), err
}

// MoveApplication stores a new location of an application's configuration in its repository.
// Conflict if the application is no longer at from or is deleted, or if another application is
// at the new location.
func (s *Store) MoveApplication(ctx context.Context, id string, from, to deploy.GitPath) error {
	err := s.write(ctx, func(t *tx) error {
		app, err := t.lockApplication(ctx, id)
		if err != nil {
			return err
		}
		if app.Deleted || app.Git != from || from.RepoID != to.RepoID {
			return deploy.Errorf(deploy.Conflict, "application %s is at %s of repository %s: it cannot be moved from %s", id, app.Git.ConfigPath(), app.Git.RepoID, from.ConfigPath())
		}
		places, err := placesOf(ctx, t, to.RepoID)
		if err != nil {
			return err
		}
		if there, ok := places.At(to); ok && !there.Deleted {
			return deploy.Errorf(deploy.Conflict, "application %s is at %s already", there.ID, to.ConfigPath())
		}
		return t.moveApplication(ctx, app, to)
	})
	return s.fail(err, "move application "+id)
}

// moveApplication stores the new location. The references to deployments get the location at
// which the deployment found the application.
func (t *tx) moveApplication(ctx context.Context, app deploy.Application, to deploy.GitPath) error {
	former := append([]deploy.GitPath{{Dir: app.Git.Dir, ConfigFile: app.Git.ConfigFile}}, app.Former...)
	former = slices.DeleteFunc(former, func(p deploy.GitPath) bool { return p.Dir == to.Dir && p.ConfigFile == to.ConfigFile })
	spec, err := encode(applicationSpec{to, app.Provider, app.Description, app.Labels, former})
	if err != nil {
		return err
	}
	triggered, err := refAt(app.LastTriggered, app.Git)
	if err != nil {
		return err
	}
	successful, err := refAt(app.LastSuccessful, app.Git)
	if err != nil {
		return err
	}
	return t.updateApplication(ctx, app.ID, "spec = ?, last_triggered = ?, last_successful = ?", spec, triggered, successful)
}

// refAt encodes a reference to a deployment. A reference without a location gets git, the
// location at which the deployment found the application.
func refAt(ref *deploy.DeploymentRef, git deploy.GitPath) (string, error) {
	if ref == nil {
		return "", nil
	}
	at := ref.At(git)
	known := *ref
	known.Dir, known.ConfigFile = at.Dir, at.ConfigFile
	return encode(known)
}
