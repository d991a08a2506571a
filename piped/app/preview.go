package app

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/preview"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/planner"
	"github.com/c785c783/piped/trigger"
)

// previews returns the effects of a sync. It implements control.Planner here, because it joins
// the planner with the repositories and clusters of this package.
type previews struct {
	planner      *planner.Planner
	repositories *repositories
	// concealed renders without secrets, for display.
	concealed *source.Loader
	platforms platforms
}

// Preview implements control.Planner.
func (p previews) Preview(ctx context.Context, app deploy.Application, hash string, strategy deploy.Strategy, subject string) (deploy.Deployment, string, error) {
	commit, err := p.commit(ctx, app.Git.RepoID, hash)
	if err != nil {
		return deploy.Deployment{}, "", err
	}
	return p.planner.Preview(ctx, deploy.Deployment{
		ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Labels: app.Labels, Status: deploy.Pending,
		Trigger: trigger.ByHand(commit, strategy, subject),
	})
}

// Changes implements control.Planner.
func (p previews) Changes(ctx context.Context, d deploy.Deployment) (deploy.Effect, error) {
	target, err := p.concealed.Load(ctx, d.Git, d.Trigger.Commit.Hash)
	if err != nil {
		return deploy.Effect{}, fmt.Errorf("load %s at commit %s: %w", d.Git.ConfigPath(), d.Trigger.Commit.Short(), err)
	}
	running, err := p.running(ctx, d)
	if err != nil {
		return deploy.Effect{}, err
	}
	return changesOf(p.platforms)(ctx, d, running, target)
}

// running loads the source that runs before a deployment, nil if there is none. Before an
// unplanned deployment that is the application's last success.
func (p previews) running(ctx context.Context, d deploy.Deployment) (*source.Source, error) {
	at, commit := d.RunningGit(), d.RunningCommit
	if d.Status == deploy.Pending {
		app, err := p.planner.Store.Application(ctx, d.ApplicationID)
		if err != nil {
			return nil, err
		}
		if last := app.LastSuccessful; last != nil {
			at, commit = last.At(d.Git), last.Trigger.Commit.Hash
		}
	}
	if commit == "" {
		return nil, nil
	}
	running, err := p.concealed.Load(ctx, at, commit)
	if err != nil {
		return nil, fmt.Errorf("load the running commit %s to compare with it: %w", deploy.ShortHash(commit), err)
	}
	return running, nil
}

// commit returns a commit of a repository; hash "" is the last known head.
func (p previews) commit(ctx context.Context, repoID, hash string) (deploy.Commit, error) {
	mirror, err := p.repositories.mirror(repoID)
	if err != nil {
		return deploy.Commit{}, err
	}
	if hash != "" {
		return mirror.Commit(ctx, hash)
	}
	head, ok := mirror.Head()
	if !ok {
		return head, deploy.Errorf(deploy.Unavailable, "repository %q has not been read yet: try again", repoID)
	}
	return head, nil
}

// planOf adapts the planner to plan previews.
func planOf(plans *planner.Planner) preview.Plan {
	return func(ctx context.Context, app deploy.Application, d deploy.Deployment, target func(context.Context) (*source.Source, error), sources preview.Sources) (deploy.Deployment, *source.Source, error) {
		return plans.PreviewOf(ctx, app, d, target, sources)
	}
}

// changesOf adapts the platforms to plan previews.
func changesOf(all platforms) func(context.Context, deploy.Deployment, *source.Source, *source.Source) (deploy.Effect, error) {
	return func(ctx context.Context, d deploy.Deployment, running, target *source.Source) (deploy.Effect, error) {
		platform, err := all.of(target.Config.Kind)
		if err != nil {
			return deploy.Effect{}, err
		}
		return platform.Changes(ctx, d, running, target), nil
	}
}

// mergeable adapts repositories to plan previews. It joins them with the trigger.
type mergeable struct {
	live   *live
	shared bool // another replica may watch a repository: its mirror here may be behind
}

// Merge implements preview.Repositories.
func (m mergeable) Merge(ctx context.Context, repoID, base, branch, commit string) (*git.Merge, error) {
	repo, err := m.into(repoID, base)
	if err == nil && m.shared {
		_, _, err = repo.Sync(ctx)
	}
	if err != nil {
		return nil, err
	}
	return repo.Merge(ctx, branch, commit)
}

// MergeRef implements pullpreview.Repositories.
func (m mergeable) MergeRef(ctx context.Context, repoID, base, ref, commit string) (*git.Merge, error) {
	repo, err := m.into(repoID, base)
	if err != nil {
		return nil, err
	}
	return repo.MergeRef(ctx, ref, commit)
}

// into returns the repository whose watched branch is base.
func (m mergeable) into(repoID, base string) (*git.Repo, error) {
	watched, problems := m.live.repositories.watchable()
	for _, r := range watched {
		if r.Config.RepoID != repoID {
			continue
		}
		if r.Config.Branch != base {
			return nil, deploy.Errorf(deploy.Invalid, "branch %s of repository %q is watched, and not %s: preview merges into that one", r.Config.Branch, repoID, base)
		}
		return r.Git, nil
	}
	if problem := problems[repoID]; problem != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "repository %q cannot be watched: %w", repoID, problem)
	}
	return nil, deploy.Errorf(deploy.Invalid, "repository %q is not in the agent's configuration", repoID)
}

// Foresee implements preview.Repositories.
func (m mergeable) Foresee(ctx context.Context, repoID string, merge *git.Merge) ([]deploy.AffectedApplication, error) {
	return m.live.follower.get().Foresee(ctx, repoID, merge)
}
