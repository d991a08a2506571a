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

// onCommit decides for every application of the repository whether the commits
// since the one evaluated last touch it, and makes a deployment if they do. What
// was decided is stored as the application's evaluated commit: with the
// deployment, in its transaction, or in one write for all untouched ones. An
// application that fails keeps no other from its deployment.
func (w *watcher) onCommit(ctx context.Context, head deploy.Commit, apps map[string]deploy.Application) error {
	changes := changeCache{repo: w.repo.Git, head: head.Hash, byBase: map[string][]string{}}
	var untouched []string
	var rs []request
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(apps)) {
		app := apps[id]
		e, ok := w.catalog.entries[id]
		if !ok || app.Disabled || app.Deleted || app.EvaluatedCommit == head.Hash {
			continue
		}
		provider, problem := e.problem(w.Providers)
		if problem != nil {
			continue // said on the application; evaluated again once it is mended
		}
		reason, err := w.reasonToDeploy(ctx, app, e, &changes)
		if err == nil && reason == "" {
			untouched = append(untouched, id)
			continue
		}
		var r request
		if err == nil {
			r, err = w.commitRequest(ctx, app, e, provider, head, reason)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("application %s: %w", app.Name, err))
			continue
		}
		rs = append(rs, r)
	}
	for i, err := range w.create(ctx, rs) {
		if err != nil {
			errs = append(errs, fmt.Errorf("application %s: create a deployment of commit %s: %w", rs[i].Deployment.ApplicationName, head.Short(), err))
		}
	}
	return errors.Join(append(errs, w.Store.SetEvaluatedCommit(ctx, head.Hash, untouched...))...)
}

// reasonToDeploy says why the application must be deployed, "" if it need not.
func (w *watcher) reasonToDeploy(ctx context.Context, app deploy.Application, e entry, changes *changeCache) (string, error) {
	on := e.candidate.Config.Trigger.OnCommit
	switch {
	case on.Disabled:
		return "", nil
	case app.EvaluatedCommit == "":
		return "first deployment of the application", nil
	}
	changed, err := changes.since(ctx, app.EvaluatedCommit)
	if deploy.IsKind(err, deploy.NotFound) {
		return fmt.Sprintf("the branch was rewritten: commit %s is gone", deploy.ShortHash(app.EvaluatedCommit)), nil
	}
	if err != nil {
		return "", err
	}
	if file, ok := touched(app.Git.Dir, on.Paths, on.Ignores, changed); ok {
		return file + " changed", nil
	}
	return "", nil
}

func (w *watcher) commitRequest(ctx context.Context, app deploy.Application, e entry, provider string, head deploy.Commit, reason string) (request, error) {
	r, err := w.newRequest(ctx, app, e, provider, deploy.Trigger{Kind: deploy.OnCommit, Commit: head, Strategy: deploy.StrategyAuto})
	r.Supersede, r.reason = r.queue != config.QueueAll, reason
	return r, err
}
