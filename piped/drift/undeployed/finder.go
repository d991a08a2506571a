// Package undeployed finds the commits of a branch that change an application and are not
// deployed yet, by the rule by which the trigger deploys. It reads Git only: two commits
// are compared by their paths, and by their rendered manifests where these concern the
// application.
package undeployed

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

const (
	maxCommits = 50      // commits that are returned
	maxSteps   = 1000    // newest commits that are compared for them
	maxCached  = 1 << 15 // paths and steps in the cache
)

// Finder finds undeployed commits. It implements drift.Git and is safe for concurrent
// use.
type Finder struct {
	mirror  func(repoID string) (*git.Repo, error)
	sources *source.Loader

	// The cache of comparisons, which never change. The applications of a repository
	// share them.
	mu     sync.Mutex
	cache  map[span]*between
	cached int // paths and steps in cache
}

// span is a pair of commits.
type span struct{ repoID, from, to string }

// between is what lies between two commits.
type between struct {
	changed []string   // the paths that differ
	steps   []git.Step // of the branch, nil if it was rewritten

	hasChanged, hasSteps bool // whether they were read
}

// New returns a Finder that reads the mirrors of the configured repositories.
func New(mirror func(repoID string) (*git.Repo, error), sources *source.Loader) *Finder {
	return &Finder{mirror: mirror, sources: sources, cache: map[span]*between{}}
}

// Undeployed reports whether the application's manifests at commit head differ from those
// at commit deployed. If they do, it returns the commits of the branch between them that
// touch the application by its trigger.onCommit: the newest first, at most 50, none if the
// branch was rewritten. Paths that the rule ignores count for neither. Unless the
// application was touched, only two directories are compared.
//
// An error of kind deploy.Invalid lasts until something changes in Git or the application
// is synced, and says what to do.
func (f *Finder) Undeployed(ctx context.Context, app deploy.Application, deployed, head string) (commits []string, differs bool, err error) {
	if deployed == head {
		return nil, false, nil
	}
	mirror, err := f.mirror(app.Git.RepoID)
	if err != nil {
		return nil, false, err
	}
	rule, err := f.rule(ctx, mirror, app.Git, head)
	if err != nil {
		return nil, false, err
	}
	touched, err := f.touched(ctx, mirror, rule, app.Git, deployed, head)
	if deploy.IsKind(err, deploy.NotFound) {
		err = deploy.Errorf(deploy.Invalid, "find undeployed commits: the deployed commit %s is gone from the mirror; sync the application", deploy.ShortHash(deployed))
	}
	if err != nil || !touched {
		return nil, false, err
	}
	if differs, err = f.differ(ctx, app, deployed, head); err != nil || !differs {
		return nil, false, err
	}
	commits, err = f.touching(ctx, mirror, rule, app.Git, deployed, head)
	return commits, true, err
}

// rule returns the application's trigger.onCommit at a commit.
func (f *Finder) rule(ctx context.Context, mirror *git.Repo, at deploy.GitPath, head string) (config.OnCommit, error) {
	if _, err := mirror.Commit(ctx, head); deploy.IsKind(err, deploy.NotFound) {
		return config.OnCommit{}, deploy.Errorf(deploy.Unavailable, "find undeployed commits: %w; this is repeated when the branch has been read", err)
	}
	cfg, err := f.sources.Config(ctx, at, head)
	if deploy.IsKind(err, deploy.NotFound) {
		err = deploy.Errorf(deploy.Invalid, "%s is no longer in commit %s: put it back, or delete the application", at.ConfigPath(), deploy.ShortHash(head))
	}
	if err != nil {
		return config.OnCommit{}, err
	}
	return cfg.Trigger.OnCommit, nil
}

// touched reports whether what differs between two commits concerns the application.
func (f *Finder) touched(ctx context.Context, mirror *git.Repo, rule config.OnCommit, at deploy.GitPath, from, to string) (bool, error) {
	if len(rule.Paths) == 0 { // only its directory counts
		before, err := mirror.TreeHash(from, at.Dir)
		if err != nil {
			return false, err
		}
		after, err := mirror.TreeHash(to, at.Dir)
		if err != nil || before == after {
			return false, err
		}
	}
	changed, err := f.changed(ctx, mirror, span{at.RepoID, from, to})
	if err != nil {
		return false, err
	}
	_, ok := rule.Touched(at.Dir, changed)
	return ok, nil
}

// differ reports whether the application's manifests differ between two commits.
func (f *Finder) differ(ctx context.Context, app deploy.Application, deployed, head string) (bool, error) {
	after, err := f.sources.Load(ctx, app.Git, head)
	if err != nil {
		return false, fmt.Errorf("render commit %s: %w", deploy.ShortHash(head), err)
	}
	before, err := f.sources.Load(ctx, placeOf(app), deployed)
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		err = deploy.Errorf(deploy.Invalid, "find undeployed commits: the deployed commit %s can no longer be rendered: %w; sync the application", deploy.ShortHash(deployed), err)
	}
	if err != nil {
		return false, err
	}
	return before.Digest != after.Digest, nil
}

// placeOf returns the path of the application at its last success.
func placeOf(app deploy.Application) deploy.GitPath {
	if app.LastSuccessful == nil {
		return app.Git
	}
	return app.LastSuccessful.At(app.Git)
}

// touching returns the commits of the branch between two that touch the application.
func (f *Finder) touching(ctx context.Context, mirror *git.Repo, rule config.OnCommit, at deploy.GitPath, deployed, head string) (commits []string, err error) {
	steps, err := f.steps(ctx, mirror, span{at.RepoID, deployed, head})
	if err != nil {
		return nil, err
	}
	for _, s := range steps[:min(len(steps), maxSteps)] {
		touched, err := f.touched(ctx, mirror, rule, at, s.Parent, s.Commit)
		if errors.Is(err, git.ErrBeyond) {
			touched, err = true, nil // too large to be compared: it may touch anything
		}
		if err != nil {
			return nil, err
		}
		if touched {
			commits = append(commits, s.Commit)
		}
		if len(commits) == maxCommits {
			break
		}
	}
	return commits, nil
}

// changed returns the paths that differ between two commits.
func (f *Finder) changed(ctx context.Context, mirror *git.Repo, s span) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.between(s)
	if !b.hasChanged {
		paths, err := mirror.Changed(ctx, s.from, s.to)
		if err != nil {
			return nil, err
		}
		b.changed, b.hasChanged = paths, true
		f.put(s, b, len(paths))
	}
	return b.changed, nil
}

// steps returns the commits of the branch from one to another, the newest first.
func (f *Finder) steps(ctx context.Context, mirror *git.Repo, s span) ([]git.Step, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.between(s)
	if !b.hasSteps {
		steps, _, err := mirror.Since(ctx, s.from, s.to)
		if err != nil {
			return nil, err
		}
		b.steps, b.hasSteps = steps, true
		f.put(s, b, len(steps))
	}
	return b.steps, nil
}

// between returns the cached comparison, or an empty one. The caller holds the lock.
func (f *Finder) between(s span) *between {
	if b := f.cache[s]; b != nil {
		return b
	}
	return &between{}
}

// put caches a comparison that has grown by n paths or steps.
func (f *Finder) put(s span, b *between, n int) {
	if f.cached += n + 1; f.cached > maxCached {
		clear(f.cache)
		f.cached = n + 1
	}
	f.cache[s] = b
}
