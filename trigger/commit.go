package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// subject is an application to evaluate, with its configuration and its platform provider.
type subject struct {
	app      deploy.Application
	entry    entry
	provider string
}

// onCommit evaluates for every application of the repository whether the commits since its
// last evaluated one change it, and creates a deployment if they do. It stores the
// application's evaluated commit: in the transaction of the deployment, or in one write for
// all unchanged applications of a provider. A failing application does not affect others,
// and an unresponsive cluster does not affect those of other providers.
func (w *watcher) onCommit(ctx context.Context, head deploy.Commit, apps map[string]deploy.Application) error {
	byProvider := map[string][]subject{}
	for _, s := range w.subjects(head, apps) {
		byProvider[s.provider] = append(byProvider[s.provider], s)
	}
	type result struct {
		provider string
		found    takenOver
	}
	results := make(chan result)
	for provider, subjects := range byProvider {
		go func() { results <- result{provider, w.takeOvers(ctx, head, subjects)} }()
	}
	changes := changeCache{repo: w.repo.Git, head: head.Hash, byBase: map[string][]string{}}
	// held and awaited are by application ID. waitedFor contains the providers with held
	// applications.
	held, awaited, waitedFor := map[string]error{}, map[string]deploy.Adoption{}, map[string]bool{}
	var answered []subject
	var errs []error
	for range byProvider {
		r := <-results
		errs = append(errs, w.decide(ctx, head, byProvider[r.provider], r.found, &changes))
		maps.Copy(held, r.found.held)
		maps.Copy(awaited, r.found.awaited)
		for _, s := range byProvider[r.provider] {
			if r.found.held[s.app.ID] == nil && r.found.failed[s.app.ID] == nil {
				answered = append(answered, s)
			}
		}
		waitedFor[r.provider] = len(r.found.held) > 0
	}
	w.silent.keep(func(asked respondent) bool { return waitedFor[asked.provider] || held[asked.applicationID] != nil })
	return errors.Join(append(errs, w.keepAdoptions(ctx, answered, awaited, held), w.sayHeld(ctx, apps, held, awaited))...)
}

// decide creates the deployments that the head or the running state requires, and stores
// the head as the evaluated commit of the applications that need none. subjects have the
// same provider.
func (w *watcher) decide(ctx context.Context, head deploy.Commit, subjects []subject, found takenOver, changes *changeCache) error {
	var errs []error
	untouched := map[string]string{} // by application ID: the evaluated commit before this decision
	var rs []request
	for _, s := range subjects {
		if _, waits := found.awaited[s.app.ID]; waits || found.held[s.app.ID] != nil {
			continue
		}
		if err := found.failed[s.app.ID]; err != nil { // it may have a running state to take over
			errs = append(errs, fmt.Errorf("application %s: %w", s.app.Name, err))
			continue
		}
		r, waits, err := w.requestFor(ctx, head, s, found.running[s.app.ID], changes)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("application %s: %w", s.app.Name, err))
		case waits:
		case r == nil:
			untouched[s.app.ID] = s.app.EvaluatedCommit
		default:
			r.Base = &s.app.EvaluatedCommit
			rs = append(rs, *r)
		}
	}
	for i, err := range w.create(ctx, rs) {
		switch {
		case deploy.IsKind(err, deploy.Conflict):
			w.reconsider() // the application was disabled or added again meanwhile
		case err != nil:
			errs = append(errs, fmt.Errorf("application %s: create a deployment of commit %s: %w", rs[i].Deployment.ApplicationName, head.Short(), err))
		}
	}
	return errors.Join(append(errs, w.Store.SetEvaluatedCommit(ctx, head.Hash, untouched))...)
}

// subjects returns the applications to evaluate at the head, ordered by ID. An application
// with an unusable configuration is omitted until the configuration is fixed; register
// stores the problem on the application.
func (w *watcher) subjects(head deploy.Commit, apps map[string]deploy.Application) []subject {
	var out []subject
	for _, id := range slices.Sorted(maps.Keys(apps)) {
		app := apps[id]
		e, ok := w.catalog.entries[id]
		if !ok || app.Disabled || app.Deleted || app.EvaluatedCommit == head.Hash {
			continue
		}
		if provider, problem := e.problem(w.Trigger, app); problem == nil {
			out = append(out, subject{app, e, provider})
		}
	}
	return out
}

// requestFor returns the deployment that the head, or the commit running, requires; nil if
// none is needed. running is the commit of the live objects to take over, zero for none.
// waits reports that the decision must wait for the end of an earlier takeover.
func (w *watcher) requestFor(ctx context.Context, head deploy.Commit, s subject, running deploy.Commit, changes *changeCache) (r *request, waits bool, err error) {
	if waits, err := w.takingOver(ctx, s.app); waits || err != nil {
		return nil, waits, err
	}
	if running.Hash != "" {
		if r, err := w.takeOverRequest(ctx, s.app, running); r != nil || err != nil {
			return r, false, err
		}
	}
	reason, err := w.reasonToDeploy(ctx, s.app, s.entry, changes.since)
	if reason == "" || err != nil {
		return nil, false, err
	}
	made, err := w.newRequest(ctx, s.app, s.entry, s.provider, deploy.Trigger{Kind: deploy.OnCommit, Commit: head, Strategy: deploy.StrategyAuto})
	made.Supersede, made.Replace, made.reason = made.queue != config.QueueAll, made.queue == config.QueueReplace, reason
	return &made, false, err
}

// reasonToDeploy returns why the application must be deployed, "" if it need not be. since
// returns the files changed between a commit and the one to deploy.
func (w *watcher) reasonToDeploy(ctx context.Context, app deploy.Application, e entry, since func(ctx context.Context, base string) ([]string, error)) (string, error) {
	on := e.candidate.Config.Trigger.OnCommit
	switch {
	case on.Disabled:
		return "", nil
	case app.EvaluatedCommit == "" && app.LastTriggered == nil:
		return "first deployment of the application", nil
	case app.EvaluatedCommit == "":
		return "first deployment since the application was added again or enabled", nil
	}
	base := app.Hold.Base(app.EvaluatedCommit)
	changed, err := since(ctx, base)
	if deploy.IsKind(err, deploy.NotFound) {
		return fmt.Sprintf("the branch was rewritten: commit %s is gone", deploy.ShortHash(base)), nil
	}
	if err != nil {
		return "", err
	}
	if file, ok := on.Touched(app.Git.Dir, changed); ok {
		return file + " changed", nil
	}
	return "", nil
}
