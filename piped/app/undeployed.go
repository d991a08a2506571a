package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source"
)

// undeployed tells what of Git is not deployed. It is safe for concurrent use.
type undeployed struct {
	repositories *repositories
	sources      *source.Loader

	mu    sync.Mutex
	known map[span]*between
	held  int // paths and steps in known
}

// span is a question about two commits, and between its answers, which never
// change.
type (
	span    struct{ repoID, from, to string }
	between struct {
		changed []string   // the paths that differ
		steps   []git.Step // of the branch, nil if it was rewritten
		// hasChanged and hasSteps say what of it is known.
		hasChanged, hasSteps bool
	}
)

const (
	maxUndeployed = 50      // commits that are told
	maxLookedAt   = 1000    // newest commits that are looked at for them
	maxHeld       = 1 << 15 // answers that are remembered: the applications of a repository ask for the same ones
)

func newUndeployed(repositories *repositories, sources *source.Loader) *undeployed {
	return &undeployed{repositories: repositories, sources: sources, known: map[span]*between{}}
}

// Undeployed reports whether the application declares something else at commit head
// than at commit deployed, and if so which commits of the branch between them touch
// it by the rule by which the trigger deploys: the newest first, at most 50, none
// when the branch was rewritten. What the rule does not count is not looked at. It
// costs a comparison of two directories unless the application was touched.
//
// The kind is Invalid when it cannot be told before something changes in Git or the
// application is synced, with what to do.
func (u *undeployed) Undeployed(ctx context.Context, app deploy.Application, deployed, head string) (commits []string, differs bool, err error) {
	if deployed == head {
		return nil, false, nil
	}
	mirror, err := u.repositories.mirror(app.Git.RepoID)
	if err != nil {
		return nil, false, err
	}
	rule, err := u.rule(ctx, mirror, app.Git, head)
	if err != nil {
		return nil, false, err
	}
	touched, err := u.touched(ctx, mirror, rule, app.Git, deployed, head)
	if deploy.IsKind(err, deploy.NotFound) {
		err = deploy.Errorf(deploy.Invalid, "whether commits are not deployed cannot be told: commit %s, which is, is gone from the mirror; sync the application", deploy.ShortHash(deployed))
	}
	if err != nil || !touched {
		return nil, false, err
	}
	if differs, err = u.differ(ctx, app, deployed, head); err != nil || !differs {
		return nil, false, err
	}
	commits, err = u.touching(ctx, mirror, rule, app.Git, deployed, head)
	return commits, true, err
}

// rule returns what touches the application, as its configuration at a commit says.
func (u *undeployed) rule(ctx context.Context, mirror *git.Repo, at deploy.GitPath, head string) (config.OnCommit, error) {
	if _, err := mirror.Commit(ctx, head); deploy.IsKind(err, deploy.NotFound) {
		return config.OnCommit{}, deploy.Errorf(deploy.Unavailable, "find out what is not deployed: %w; it is looked at again once the branch was read", err)
	}
	cfg, err := u.sources.Config(ctx, at, head)
	if deploy.IsKind(err, deploy.NotFound) {
		err = deploy.Errorf(deploy.Invalid, "%s is not in commit %s any more: put it back, or delete the application", at.ConfigPath(), deploy.ShortHash(head))
	}
	if err != nil {
		return config.OnCommit{}, err
	}
	return cfg.Trigger.OnCommit, nil
}

// touched reports whether what differs between two commits concerns the application.
func (u *undeployed) touched(ctx context.Context, mirror *git.Repo, rule config.OnCommit, at deploy.GitPath, from, to string) (bool, error) {
	if len(rule.Paths) == 0 { // nothing counts that is not in its directory
		before, err := mirror.TreeHash(from, at.Dir)
		if err != nil {
			return false, err
		}
		after, err := mirror.TreeHash(to, at.Dir)
		if err != nil || before == after {
			return false, err
		}
	}
	changed, err := u.changed(ctx, mirror, span{at.RepoID, from, to})
	if err != nil {
		return false, err
	}
	_, ok := rule.Touched(at.Dir, changed)
	return ok, nil
}

// differ reports whether the application declares something else at head than where
// it was deployed.
func (u *undeployed) differ(ctx context.Context, app deploy.Application, deployed, head string) (bool, error) {
	after, err := u.sources.Load(ctx, app.Git, head)
	if err != nil {
		return false, fmt.Errorf("render commit %s: %w", deploy.ShortHash(head), err)
	}
	before, err := u.sources.Load(ctx, placeOf(app), deployed)
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		err = deploy.Errorf(deploy.Invalid, "whether commits are not deployed cannot be told: commit %s, which is, cannot be rendered any more: %w; sync the application", deploy.ShortHash(deployed), err)
	}
	if err != nil {
		return false, err
	}
	return before.Digest != after.Digest, nil
}

// placeOf returns where the application was at its last success.
func placeOf(app deploy.Application) deploy.GitPath {
	if app.LastSuccessful == nil {
		return app.Git
	}
	return app.LastSuccessful.At(app.Git)
}

// touching returns the commits of the branch between two that touch the application.
func (u *undeployed) touching(ctx context.Context, mirror *git.Repo, rule config.OnCommit, at deploy.GitPath, deployed, head string) (commits []string, err error) {
	steps, err := u.steps(ctx, mirror, span{at.RepoID, deployed, head})
	if err != nil {
		return nil, err
	}
	for _, s := range steps[:min(len(steps), maxLookedAt)] {
		touched, err := u.touched(ctx, mirror, rule, at, s.Parent, s.Commit)
		if errors.Is(err, git.ErrBeyond) {
			touched, err = true, nil // a commit that is too large to be compared may touch anything
		}
		if err != nil {
			return nil, err
		}
		if touched {
			commits = append(commits, s.Commit)
		}
		if len(commits) == maxUndeployed {
			break
		}
	}
	return commits, nil
}

// changed returns the paths that differ between two commits.
func (u *undeployed) changed(ctx context.Context, mirror *git.Repo, s span) ([]string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.between(s)
	if !b.hasChanged {
		paths, err := mirror.Changed(ctx, s.from, s.to)
		if err != nil {
			return nil, err
		}
		b.changed, b.hasChanged = paths, true
		u.keep(s, b, len(paths))
	}
	return b.changed, nil
}

// steps returns the commits of the branch from one to another, the newest first.
func (u *undeployed) steps(ctx context.Context, mirror *git.Repo, s span) ([]git.Step, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.between(s)
	if !b.hasSteps {
		steps, _, err := mirror.Since(ctx, s.from, s.to)
		if err != nil {
			return nil, err
		}
		b.steps, b.hasSteps = steps, true
		u.keep(s, b, len(steps))
	}
	return b.steps, nil
}

// between returns what is known of two commits, for whoever holds the lock.
func (u *undeployed) between(s span) *between {
	if b := u.known[s]; b != nil {
		return b
	}
	return &between{}
}

// keep remembers what was found out, n paths or steps.
func (u *undeployed) keep(s span, b *between, n int) {
	if u.held += n + 1; u.held > maxHeld {
		clear(u.known)
		u.held = n + 1
	}
	u.known[s] = b
}
