package trigger

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// holdFor returns the hold that a deployment by hand begins, nil for none. A rollback holds
// the application at its commit. So does a sync or a retry of a commit if later commits of
// the branch change the application: otherwise the next self-heal would deploy the head
// again.
//
// If the head is refused for the application, the last evaluated commit is used in its
// place.
func (w *watcher) holdFor(ctx context.Context, app deploy.Application, c deploy.Command, commit deploy.Commit, refused bool) (*deploy.Hold, error) {
	head := w.catalog.commit.Hash
	hold := &deploy.Hold{Commit: commit, By: c.Commander, Reason: c.Reason, Head: head}
	if c.IsRollback() {
		if hold.Reason == "" {
			hold.Reason = "rollback to commit " + commit.Short()
		}
		return hold, nil
	}
	changed, err := w.changedAfter(ctx, commit.Hash, app.EvaluatedCommit, refused)
	if err != nil {
		return nil, fmt.Errorf("find out whether commits after %s change application %s: %w", commit.Short(), app.Name, err)
	}
	var on config.OnCommit
	if e, ok := w.catalog.entries[app.ID]; ok && e.candidate.Err == nil {
		on = e.candidate.Config.Trigger.OnCommit
	}
	if _, later := on.Touched(app.Git.Dir, changed); !later {
		return nil, nil
	}
	hold.Reason = fmt.Sprintf("sync to commit %s, after which others change the application", commit.Short())
	return hold, nil
}

// changedAfter returns the files that the branch has changed after a commit: up to the
// head, or up to the last evaluated commit if the head is refused.
func (w *watcher) changedAfter(ctx context.Context, commit, evaluated string, refused bool) ([]string, error) {
	latest := w.catalog.commit.Hash
	if refused {
		latest = evaluated
	}
	if latest == "" || latest == commit {
		return nil, nil
	}
	if refused {
		return w.repo.Git.Changed(ctx, commit, latest)
	}
	return w.catalog.changes.since(ctx, commit)
}
