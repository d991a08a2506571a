package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// register makes the store agree with the commit: it adds the selected applications,
// updates the known ones, and stores for each application whether its configuration is
// valid. It updates apps, the applications in the store by ID, accordingly.
func (w *watcher) register(ctx context.Context, apps map[string]deploy.Application) error {
	var puts []deploy.Application
	problems := map[string]error{}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(w.catalog.entries)) {
		e := w.catalog.entries[id]
		known, ok := apps[id]
		if known.Deleted || !ok && !w.takes(e, w.catalog.found) {
			continue // a deleted application returns only when it is added again
		}
		if ok {
			errs = append(errs, w.sayRefused(ctx, known, e.refused))
		}
		if e.refused != nil {
			continue // a refused commit neither adds nor changes an application
		}
		app, problem := w.describe(known, e, id)
		if !ok || !app.SameSpec(known) {
			puts = append(puts, app)
		}
		if problems[id] = problem; ok {
			errs = append(errs, w.setValidity(ctx, app, problem))
		}
		w.warn(app, e)
	}
	for id, app := range apps {
		if _, ok := w.catalog.entries[id]; !ok && !app.Deleted {
			errs = append(errs, w.setMissing(ctx, app))
		}
	}
	return errors.Join(append(errs, w.put(ctx, puts, apps, problems)...)...)
}

// setMissing stores that the commit does not contain the application's configuration,
// unless the commit is refused for the application.
func (w *watcher) setMissing(ctx context.Context, app deploy.Application) error {
	refused, err := w.headRefusal(ctx, app, app.Git, w.catalog.commit.Hash)
	if err == nil {
		err = w.sayRefused(ctx, app, refused)
	}
	if refused != nil || err != nil {
		return err
	}
	return w.setValidity(ctx, app, w.missing(app))
}

// missing returns the error for an application whose configuration is not in the commit.
// An application that was added by request may have been added before its file.
func (w *watcher) missing(app deploy.Application) error {
	at, commit := app.Git.ConfigPath(), w.catalog.commit
	if app.Registration.By != "" && app.EvaluatedCommit == "" {
		return deploy.Errorf(deploy.Invalid, "%s does not exist at commit %s: commit the file to branch %s; the application is deployed from the commit that brings it",
			at, commit.Short(), app.Git.Branch)
	}
	var elsewhere []string
	for _, e := range w.catalog.entries {
		if e.candidate.Err == nil && e.candidate.Config.Name == app.Name {
			elsewhere = append(elsewhere, e.git.ConfigPath())
		}
	}
	if len(elsewhere) == 0 {
		return deploy.Errorf(deploy.Invalid, "%s no longer exists at commit %s: bring the file back; until then nothing of the application is deployed, and what it has in the cluster stays",
			at, commit.Short())
	}
	slices.Sort(elsewhere)
	return deploy.Errorf(deploy.Invalid, "%s no longer exists at commit %s, and it is not known that the application was moved to %s, which has its name: the commit that brings the new file "+
		"has to remove the old one, and no other application of the name may be moved with it. Bring the file back and move it so, or delete this application and add the new place, whose application takes over what runs",
		at, commit.Short(), strings.Join(elsewhere, " or "))
}

// put stores applications, updates apps with them, and sets the validity of new ones.
func (w *watcher) put(ctx context.Context, puts []deploy.Application, apps map[string]deploy.Application, problems map[string]error) []error {
	_, errs := w.Store.PutApplications(ctx, puts)
	for i, app := range puts {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("register application %s: %w", app.Name, errs[i])
			continue
		}
		if _, known := apps[app.ID]; !known {
			w.log.Info("application registered", "app", app.Name, "path", app.Git.ConfigPath(), "commit", w.catalog.commit.Short())
			if problem := problems[app.ID]; problem != nil {
				errs[i] = w.setValidity(ctx, app, problem)
			}
		}
		apps[app.ID] = app
	}
	return errs
}

// applications returns the applications of the repository by ID, deleted ones
// included and previews of pull requests excluded.
func (w *watcher) applications(ctx context.Context) (map[string]deploy.Application, error) {
	apps, _, err := w.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: w.repo.Config.RepoID, IncludeAll: true, IncludeDeleted: true})
	if err != nil {
		return nil, err
	}
	out := make(map[string]deploy.Application, len(apps))
	for _, app := range apps {
		if !app.IsPreview() {
			out[app.ID] = app
		}
	}
	return out, nil
}

// takes reports whether the agent's configuration (discover) selects the candidate. A
// configuration that cannot be parsed is selected by its path alone, so that users see its
// error, unless discover requires labels. All are the candidates of the same commit.
func (w *watcher) takes(e entry, all []entry) bool {
	discover := w.repo.Config.Discover
	var unsupported *config.UnsupportedKind
	if discover == nil || errors.As(e.candidate.Err, &unsupported) || replaced(e, all) {
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

// replaced reports whether the directory of an application configuration with PipeCD's
// oldest name also has one with the later name: both describe the same objects.
func replaced(e entry, all []entry) bool {
	if e.git.ConfigFile != config.OldestName {
		return false
	}
	later := e.git
	later.ConfigFile = config.DefaultName
	return slices.ContainsFunc(all, func(o entry) bool { return o.git == later })
}

// describe returns the known application, updated from its configuration. If the
// configuration is unusable it returns the problem, and does not update the description,
// the labels and the provider. A name is set in any case.
func (w *watcher) describe(known deploy.Application, e entry, id string) (app deploy.Application, problem error) {
	app = known
	app.ID, app.Git = id, e.git
	if known.Kind == "" || known.LastTriggered == nil && e.candidate.Config != nil {
		app.Kind = w.kindOf(e) // the kind can change until the first deployment
	}
	provider, problem := e.problem(w.Trigger, known)
	if problem == nil {
		cfg := e.candidate.Config
		app.Name, app.Description, app.Labels, app.Provider = deploy.NameOf(cfg.Name, known.Registration, e.git), cfg.Description, cfg.Labels, provider
	}
	if app.Name == "" {
		app.Name = deploy.NameOf("", known.Registration, e.git)
	}
	return app, problem
}

// kindOf returns the application kind of a configuration, even of an unusable one: the kind
// in its file, else the first supported kind.
func (w *watcher) kindOf(e entry) string {
	if e.candidate.Config != nil {
		return e.candidate.Config.Kind
	}
	if kind, ok := w.Kinds.Find(e.candidate.Kind); ok {
		return kind.Name
	}
	return w.Kinds[0].Name
}

// setValidity stores on a known application whether its configuration is valid, with an
// event if a commit that concerns the application makes it invalid.
func (w *watcher) setValidity(ctx context.Context, app deploy.Application, problem error) error {
	var news []deploy.Event
	state := deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "The configuration is valid again", At: w.Now()}
	switch {
	case problem != nil:
		concerned, err := w.concerned(ctx, app)
		if err != nil {
			return fmt.Errorf("application %s: find out whether commit %s concerns it: %w", app.Name, w.catalog.commit.Short(), err)
		}
		state = w.invalid(problem)
		if state.Commit = app.Sync.Commit; concerned {
			state.Commit, news = w.catalog.commit.Hash, w.failure(app, problem)
		}
	case app.Sync.Status != deploy.SyncInvalidConfig:
		return nil
	}
	if app.Sync.SameAs(state) {
		return nil
	}
	changed, err := w.Store.SetSyncState(ctx, app.ID, state, news...)
	if changed && problem != nil {
		w.log.Warn("application configuration is invalid", "app", app.Name, "error", problem)
	}
	return err
}

// concerned reports whether to publish an event for an invalid configuration at the commit:
// for the first such commit, and for each that changes the application's directory since
// the last event. Other paths in the invalid configuration do not count.
func (w *watcher) concerned(ctx context.Context, app deploy.Application) (bool, error) {
	notified := app.Sync.Commit
	switch {
	case app.Sync.Status != deploy.SyncInvalidConfig || notified == "":
		return true, nil
	case notified == w.catalog.commit.Hash:
		return false, nil
	}
	changed, err := w.catalog.changes.since(ctx, notified)
	if deploy.IsKind(err, deploy.NotFound) {
		return true, nil // the branch was rewritten
	}
	_, touched := config.OnCommit{}.Touched(app.Git.Dir, changed)
	return touched, err
}

// failure returns the event that the application cannot be deployed from the commit. Its
// key is the same for each evaluation of the commit.
func (w *watcher) failure(app deploy.Application, problem error) []deploy.Event {
	commit := w.catalog.commit
	return []deploy.Event{{
		Key: deploy.TriggerFailedKey(app.ID, commit.Hash), Type: deploy.EventTriggerFailed, ApplicationID: app.ID, At: w.Now(),
		Payload: deploy.EventPayload{Application: app.Name, Commit: &commit, Reason: problem.Error()}.JSON(),
	}}
}

// invalid returns the sync state of an application with an invalid configuration.
func (w *watcher) invalid(problem error) deploy.SyncState {
	return deploy.SyncState{
		Status: deploy.SyncInvalidConfig, ShortReason: "The application configuration is invalid", Reason: problem.Error(), At: w.Now(),
	}
}

// warn logs the warnings of an application's configuration when they change.
func (w *watcher) warn(app deploy.Application, e entry) {
	var warnings []string
	if e.candidate.Err == nil {
		warnings = e.candidate.Config.Warnings
	}
	if slices.Equal(warnings, w.warned[app.ID]) {
		return
	}
	w.warned[app.ID] = warnings
	for _, text := range warnings {
		w.log.Warn("application configuration has no effect in part", "app", app.Name, "commit", w.catalog.commit.Short(), "warning", text)
	}
}
