package trigger

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Live tells what runs in the clusters. RunningCommits returns the commits that
// the live objects of an application, as it is at the given commit, name as
// theirs; none when nothing of it is there.
type Live interface {
	RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) ([]string, error)
}

// maxLookups is how many applications are looked for in the clusters at a time.
const maxLookups = 16

// takeOvers returns, by application ID, the commits of the branch that live
// objects of applications without a success of their own were applied from, by
// PipeCD or by an agent before it lost its database. Deploying such a commit
// again changes nothing but whose the objects are; what the branch has brought
// since is then planned with something to compare it with and to return to. It is
// tried once, and not with a commit that the application was deployed from here:
// what a failed deployment left behind is no state to return to. Where a
// cluster does not answer nothing is found, which is logged once in a pass: the
// deployment that follows says the same. Failed says, by application ID, why it
// could not be found out for another reason: then it is tried again.
func (w *watcher) takeOvers(ctx context.Context, head deploy.Commit, subjects []subject) (found map[string]deploy.Commit, failed map[string]error) {
	found, failed = map[string]deploy.Commit{}, map[string]error{}
	if w.Live == nil {
		return found, failed
	}
	var mu sync.Mutex
	silent := map[string]bool{} // by provider
	silence := func(provider string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if !silent[provider] {
			w.log.Warn("cannot look for what runs; applications are deployed as new", "provider", provider, "error", err)
		}
		silent[provider] = true
	}
	var g errgroup.Group
	g.SetLimit(maxLookups)
	for _, s := range subjects {
		if s.app.LastSuccessful != nil || s.entry.candidate.Config.Trigger.OnCommit.Disabled {
			continue
		}
		g.Go(func() error {
			mu.Lock()
			skip := silent[s.provider]
			mu.Unlock()
			if skip {
				return nil
			}
			hashes, err := w.Live.RunningCommits(ctx, s.provider, s.app.Git, head.Hash)
			if deploy.IsKind(err, deploy.Unavailable) && ctx.Err() == nil {
				silence(s.provider, err)
				return nil
			}
			var commit deploy.Commit
			if err == nil {
				commit, err = w.taken(ctx, s.app, head, hashes)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed[s.app.ID] = fmt.Errorf("find out what runs of it: %w", err)
			case commit.Hash != "":
				found[s.app.ID] = commit
			}
			return nil
		})
	}
	_ = g.Wait() // what fails is in failed: it ends no other lookup
	return found, failed
}

// taken returns the newest of these commits that the branch has, without those
// from which the application was deployed here; the zero commit if there is none.
func (w *watcher) taken(ctx context.Context, app deploy.Application, head deploy.Commit, hashes []string) (deploy.Commit, error) {
	if len(hashes) == 0 {
		return deploy.Commit{}, nil
	}
	own, _, err := w.Store.ListDeployments(ctx, store.DeploymentQuery{ApplicationIDs: []string{app.ID}})
	if err != nil {
		return deploy.Commit{}, err
	}
	deployed := map[string]bool{}
	for _, d := range own {
		if d.Trigger.TakeOver {
			return deploy.Commit{}, nil // it has failed, and would again
		}
		deployed[d.Trigger.Commit.Hash] = true
	}
	var others []string
	for _, hash := range hashes {
		if !deployed[hash] {
			others = append(others, hash)
		}
	}
	c, _, err := w.repo.Git.Newest(ctx, head.Hash, others)
	return c, err
}

// takeOverRequest returns the deployment that takes over what runs at a commit,
// nil when the application cannot be deployed from there.
func (w *watcher) takeOverRequest(ctx context.Context, app deploy.Application, running deploy.Commit) (*request, error) {
	e, ok, err := w.readEntry(ctx, running, app.Git)
	if err != nil || !ok {
		return nil, err
	}
	provider, problem := e.problem(w.Providers)
	if problem != nil {
		return nil, nil
	}
	summary := fmt.Sprintf("Taking over what runs: the live objects are those of commit %s", running.Short())
	r, err := w.newRequest(ctx, app, e, provider, deploy.Trigger{
		Kind: deploy.OnCommit, Commit: running, Strategy: deploy.StrategyQuickSync, StrategySummary: summary,
		TakeOver: true, OwnershipOnly: running.Hash != w.catalog.commit.Hash,
	})
	r.reason, r.Chain, r.Deployment.ChainID = summary, nil, "" // nothing new comes of it
	return &r, err
}

// takingOver reports whether the application's last deployment takes over what
// runs and has not ended: what the branch has brought since waits for it.
func (w *watcher) takingOver(ctx context.Context, app deploy.Application) (bool, error) {
	if app.LastTriggered == nil || !app.LastTriggered.Trigger.TakeOver {
		return false, nil
	}
	d, err := w.Store.Deployment(ctx, app.LastTriggered.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return false, nil
	}
	return err == nil && !d.Status.Completed(), err
}
