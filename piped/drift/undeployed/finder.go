// Package undeployed finds the commits of a branch that change an application and are not
// deployed yet. It applies the same rule as the trigger, trigger.onCommit, and accesses no
// cluster. It compares two commits by their changed paths and, if these concern the
// application, by their rendered manifests.
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
	maxCommits = 50      // returned commits
	maxSteps   = 1000    // commits checked for them, the newest first
	maxCached  = 1 << 15 // paths and steps in the cache
)

// Finder finds undeployed commits. It implements drift.Git and is safe for concurrent
// use.
type Finder struct {
	mirror  func(ctx context.Context, repoID string, commits ...string) (*git.Repo, error)
	sources *source.Loader

	// The cache of comparisons. Comparisons are immutable, and the applications of a
	// repository share them.
	mu     sync.Mutex
	cache  map[span]*between
	cached int // paths and steps in cache
}

// span is a pair of commits.
type span struct{ repoID, from, to string }

// between is the comparison of two commits.
type between struct {
	changed []string   // the paths that differ
	steps   []git.Step // the commits of the branch; nil if the branch was rewritten

	hasChanged, hasSteps bool // whether the fields above were read
}

// New returns a Finder that reads the mirrors of the configured repositories. mirror returns one that
// has the commits, if they can be fetched.
func New(mirror func(ctx context.Context, repoID string, commits ...string) (*git.Repo, error), sources *source.Loader) *Finder {
	return &Finder{mirror: mirror, sources: sources, cache: map[span]*between{}}
}

// Undeployed reports whether the application's manifests at commit head differ from those
// at commit deployed. If they do, it returns the commits between them that touch the
// application according to trigger.onCommit at head: the newest first, at most 50, none if
// the branch was rewritten. If all changed paths are excluded by that rule, the result is
// false. Undeployed renders manifests only if a changed path concerns the application.
//
// An error of kind deploy.Invalid is permanent until Git changes or the application is
// synced. Its text says what to do.
func (f *Finder) Undeployed(ctx context.Context, app deploy.Application, deployed, head string) (commits []string, differs bool, err error) {
	if deployed == head {
		return nil, false, nil
	}
	mirror, err := f.mirror(ctx, app.Git.RepoID, deployed, head)
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

// rule returns the application's trigger.onCommit at commit head.
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

// touched reports whether a path that differs between two commits concerns the application.
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

// placeOf returns the Git path of the application at its last successful deployment.
func placeOf(app deploy.Application) deploy.GitPath {
	if app.LastSuccessful == nil {
		return app.Git
	}
	return app.LastSuccessful.At(app.Git)
}

// touching returns the commits of the branch after deployed, up to head, that touch the
// application.
func (f *Finder) touching(ctx context.Context, mirror *git.Repo, rule config.OnCommit, at deploy.GitPath, deployed, head string) (commits []string, err error) {
	steps, err := f.steps(ctx, mirror, span{at.RepoID, deployed, head})
	if err != nil {
		return nil, err
	}
	for _, s := range steps[:min(len(steps), maxSteps)] {
		touched, err := f.touched(ctx, mirror, rule, at, s.Parent, s.Commit)
		if errors.Is(err, git.ErrBeyond) {
			touched, err = true, nil // too large to compare: assume that it touches the application
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

// steps returns the commits of the branch after s.from, up to s.to, the newest first.
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

// put caches a comparison that has grown by n paths or steps. It first clears the cache if
// that would grow beyond maxCached. The caller holds the lock.
func (f *Finder) put(s span, b *between, n int) {
	if f.cached += n + 1; f.cached > maxCached {
		clear(f.cache)
		f.cached = n + 1
	}
	f.cache[s] = b
}
