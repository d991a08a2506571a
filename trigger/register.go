package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// register makes the store agree with what the commit says: it adds the
// applications the agent is configured to take, brings name, labels and
// provider of known ones up to date, and states on each application whether its
// configuration can be used.
func (w *watcher) register(ctx context.Context, c *catalog) error {
	known, err := w.applications(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(c.entries)) {
		e := c.entries[id]
		app, ok := known[id]
		if app.Deleted || !ok && !w.takes(e) {
			continue // a deleted application returns only when it is added again
		}
		if err := w.registerOne(ctx, c, e, app, id); err != nil {
			return err
		}
	}
	for id, app := range known {
		if _, ok := c.entries[id]; !ok && !app.Deleted {
			err := deploy.Errorf(deploy.Invalid, "%s no longer exists at commit %s: delete the application, or bring the file back", app.Git.ConfigPath(), c.commit.Short())
			if err := w.setInvalid(ctx, app, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// applications returns the applications of the repository by ID, deleted ones
// included.
func (w *watcher) applications(ctx context.Context) (map[string]deploy.Application, error) {
	apps, _, err := w.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: w.repo.Config.RepoID, IncludeAll: true, IncludeDeleted: true})
	if err != nil {
		return nil, err
	}
	out := make(map[string]deploy.Application, len(apps))
	for _, app := range apps {
		out[app.ID] = app
	}
	return out, nil
}

// takes reports whether the piped config selects the candidate. One that does
// not parse is taken by its path alone, so that its error shows somewhere.
func (w *watcher) takes(e entry) bool {
	discover := w.repo.Config.Discover
	var unsupported *config.UnsupportedKind
	if discover == nil || errors.As(e.candidate.Err, &unsupported) {
		return false
	}
	var labels map[string]string
	if e.candidate.Err == nil {
		labels = e.candidate.Config.Labels
	} else if len(discover.Labels) > 0 {
		return false
	}
	return w.repo.Config.Selects(e.git.ConfigPath(), labels)
}

func (w *watcher) registerOne(ctx context.Context, c *catalog, e entry, known deploy.Application, id string) error {
	app := known
	app.ID, app.Kind, app.Git = id, deploy.KindKubernetes, e.git
	provider, problem := e.problem(w.Providers)
	if app.Name == "" {
		app.Name = path.Base(path.Join(w.repo.Config.RepoID, e.git.Dir))
	}
	if problem == nil {
		cfg := e.candidate.Config
		app.Name, app.Description, app.Labels, app.Provider = cfg.Name, cfg.Description, cfg.Labels, provider
	}
	changed, err := w.Store.PutApplication(ctx, app)
	if err != nil {
		return fmt.Errorf("register application %s: %w", app.Name, err)
	}
	if changed && known.ID == "" {
		w.log.Info("application registered", "app", app.Name, "path", e.git.ConfigPath(), "commit", c.commit.Short())
	}
	if problem != nil {
		return w.setInvalid(ctx, app, problem)
	}
	if known.Sync.Status == deploy.SyncInvalidConfig {
		_, err = w.Store.SetSyncState(ctx, id, deploy.SyncState{
			Status: deploy.SyncUnknown, ShortReason: "The configuration is valid again", At: w.Now(),
		})
	}
	return err
}

// setInvalid states on the application that its configuration cannot be used.
func (w *watcher) setInvalid(ctx context.Context, app deploy.Application, problem error) error {
	changed, err := w.Store.SetSyncState(ctx, app.ID, deploy.SyncState{
		Status: deploy.SyncInvalidConfig, ShortReason: "The application configuration is invalid", Reason: problem.Error(), At: w.Now(),
	})
	if changed {
		w.log.Warn("application configuration is invalid", "app", app.Name, "error", problem)
	}
	return err
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}
