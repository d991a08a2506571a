package trigger

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// onCommand answers one sync command: with a deployment of the head commit, or of
// the commit it names, or with the reason why there is none. Lookup is the error of the pass that
// brought the repository up to date; an older commit is never deployed in place
// of a head that could not be read.
func (w *watcher) onCommand(ctx context.Context, head deploy.Commit, c deploy.Command, lookup error) {
	refusal, err := w.syncCommand(ctx, head, c, lookup)
	if err == nil && refusal != "" {
		err = w.refuse(ctx, c, refusal)
	}
	if err != nil && ctx.Err() == nil {
		w.log.Error("cannot answer a sync command; trying again", "command", c.ID, "error", err)
	}
}

func (w *watcher) syncCommand(ctx context.Context, head deploy.Commit, c deploy.Command, lookup error) (refusal string, err error) {
	if lookup != nil {
		return "the repository cannot be read: " + lookup.Error(), nil
	}
	app, err := w.Store.Application(ctx, c.ApplicationID)
	if err != nil {
		return "", err
	}
	at, err := w.catalogOf(ctx, c)
	if deploy.IsKind(err, deploy.NotFound) {
		return fmt.Sprintf("commit %s is not in branch %s of repository %s: name a full hash of the branch's history", c.Commit, app.Git.Branch, app.Git.RepoID), nil
	}
	if err != nil {
		return "", err
	}
	e, ok := at.entries[app.ID]
	if !ok {
		return fmt.Sprintf("%s does not exist at commit %s", app.Git.ConfigPath(), at.commit.Short()), nil
	}
	provider, problem := e.problem(w.Providers)
	switch {
	case app.Disabled:
		return fmt.Sprintf("application %s is disabled: enable it first", app.Name), nil
	case problem != nil:
		return problem.Error(), nil
	case e.candidate.Config.Trigger.OnCommand.Disabled:
		return fmt.Sprintf("%s forbids syncs by command (spec.trigger.onCommand.disabled)", app.Git.ConfigPath()), nil
	}
	strategy := c.Strategy
	if strategy == "" {
		strategy = deploy.StrategyAuto
	}
	d := w.newDeployment(app, e, provider, deploy.Trigger{
		Kind: deploy.OnCommand, Commit: at.commit, Commander: c.Commander, Strategy: strategy,
		StrategySummary: fmt.Sprintf("Sync by hand (%s) asked for by %s", strategy, c.Commander),
	})
	created, err := w.Store.CreateDeployment(ctx, store.NewDeployment{Deployment: d, CommandID: c.ID, Evaluated: head.Hash})
	if deploy.IsKind(err, deploy.Conflict) {
		return "", nil // answered by an earlier pass
	}
	if err != nil {
		return "", err
	}
	w.log.Info("deployment triggered", "app", app.Name, "deployment", created.ID, "commit", at.commit.Short(), "by", c.Commander)
	return "", nil
}

// catalogOf returns the catalog of the commit that c asks for: the head's, unless
// it names another.
func (w *watcher) catalogOf(ctx context.Context, c deploy.Command) (*catalog, error) {
	if c.Commit == "" || c.Commit == w.catalog.commit.Hash {
		return w.catalog, nil
	}
	commit, err := w.repo.Git.Commit(ctx, c.Commit)
	if err != nil {
		return nil, err
	}
	return readCatalog(w.repo, commit)
}
