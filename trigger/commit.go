package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// onCommit decides for every application of the repository whether the commits
// since the one evaluated last touch it, and makes a deployment if they do. What
// was decided is stored as the application's evaluated commit: with the
// deployment, in its transaction, or in one write for all untouched ones. An
// application that fails keeps no other from its deployment.
func (w *watcher) onCommit(ctx context.Context, head deploy.Commit) error {
	apps, err := w.applications(ctx)
	if err != nil {
		return err
	}
	w.pin(apps)
	changes := changeCache{repo: w.repo.Git, head: head.Hash, byBase: map[string][]string{}}
	var untouched []string
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
		if err == nil && reason != "" {
			err = w.deployCommit(ctx, app, e, provider, head, reason)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("application %s: %w", app.Name, err))
		case reason == "":
			untouched = append(untouched, id)
		}
	}
	if len(untouched) > 0 {
		errs = append(errs, w.Store.SetEvaluatedCommit(ctx, head.Hash, untouched...))
	}
	return errors.Join(errs...)
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

func (w *watcher) deployCommit(ctx context.Context, app deploy.Application, e entry, provider string, head deploy.Commit, reason string) error {
	d := w.newDeployment(app, e, provider, deploy.Trigger{Kind: deploy.OnCommit, Commit: head, Strategy: deploy.StrategyAuto})
	queue := e.candidate.Config.Trigger.Queue
	created, err := w.Store.CreateDeployment(ctx, store.NewDeployment{Deployment: d, Supersede: queue != config.QueueAll})
	if err != nil {
		return fmt.Errorf("create a deployment of commit %s: %w", head.Short(), err)
	}
	w.log.Info("deployment triggered", "app", app.Name, "deployment", created.ID, "commit", head.Short(), "reason", reason)
	if queue == config.QueueReplace {
		return w.cancelActive(ctx, created)
	}
	return nil
}

// cancelActive asks for the cancellation of the application's running
// deployments in favour of d. Like superseding, it leaves manual syncs and
// chains alone.
func (w *watcher) cancelActive(ctx context.Context, d deploy.Deployment) error {
	active, _, err := w.Store.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{d.ApplicationID}, Statuses: []deploy.Status{deploy.Running},
	})
	if err != nil {
		return err
	}
	for _, old := range active {
		if k := old.Trigger.Kind; k != deploy.OnCommit && k != deploy.OnOutOfSync || old.ChainID != "" {
			continue
		}
		_, err = w.Store.CreateCommand(ctx, deploy.Command{
			ID: w.NewID(), Type: deploy.CommandCancel, ApplicationID: d.ApplicationID, DeploymentID: old.ID,
			Commander: fmt.Sprintf("trigger.queue: replace, for commit %s", d.Trigger.Commit.Short()), ForceNoRollback: true, CreatedAt: w.Now(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newDeployment fills what every new deployment of app has.
func (w *watcher) newDeployment(app deploy.Application, e entry, provider string, t deploy.Trigger) deploy.Deployment {
	now := w.Now()
	t.At = now
	return deploy.Deployment{
		ID: w.NewID(), ApplicationID: app.ID, ApplicationName: e.candidate.Config.Name, Git: e.git, Provider: provider,
		Labels: e.candidate.Config.Labels, Trigger: t, Status: deploy.Pending,
		StatusReason: "The deployment waits to be planned", CreatedAt: now, UpdatedAt: now,
	}
}
