package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/trigger"
)

// repositories are the mirrors of the configured repositories. A mirror stays open until
// Close, even if its repository is no longer configured: running deployments may still read
// from it, and a directory must not be opened twice. It is safe for concurrent use, except
// plan and use, which have one caller.
type repositories struct {
	dir     string
	logger  *slog.Logger
	now     func() time.Time
	metrics git.Metrics
	permit  func(context.Context) error // nil if pushes are permitted
	missing missing

	mu         sync.Mutex
	mirrors    map[string]*git.Repo // by repository ID
	configured []repository
}

// repository is one configured repository.
type repository struct {
	config  config.Repository
	auth    git.Auth
	mirror  *git.Repo
	problem error // why it cannot be watched
}

// same reports whether r and o have the same configuration and problem.
func (r repository) same(o repository) bool {
	return reflect.DeepEqual(r.config, o.config) && reflect.DeepEqual(r.auth, o.auth) && fmt.Sprint(r.problem) == fmt.Sprint(o.problem)
}

func newRepositories(dataDir string, m git.Metrics, o Options) *repositories {
	return &repositories{
		dir: filepath.Join(dataDir, "git"), logger: o.Logger.With("component", "git"), now: o.Now, metrics: m, mirrors: map[string]*git.Repo{},
	}
}

// plan returns the repositories of cfg with open mirrors. The error joins why some of them
// cannot be watched, unless that is known already. Watched mirrors do not change.
func (r *repositories) plan(cfg *config.Piped) ([]repository, error) {
	var out []repository
	var problems []error
	for _, c := range cfg.Repositories {
		next := r.prepare(c, cfg.Git)
		out = append(out, next)
		if next.problem != nil && !slices.ContainsFunc(r.configured, func(old repository) bool {
			return old.config.RepoID == c.RepoID && fmt.Sprint(old.problem) == next.problem.Error()
		}) {
			problems = append(problems, fmt.Errorf("repository %q cannot be watched: %w", c.RepoID, next.problem))
		}
	}
	return out, errors.Join(problems...)
}

// prepare opens the mirror of a repository, or checks that the open one can follow it.
func (r *repositories) prepare(c config.Repository, g config.Git) repository {
	out := repository{config: c}
	if out.auth, out.problem = gitAuth(g, c.Remote); out.problem != nil {
		return out
	}
	gc := git.Config{
		ID: c.RepoID, Remote: c.Remote, Branch: c.Branch, Dir: r.dir, Auth: out.auth, Logger: r.logger, Now: r.now, Metrics: r.metrics, Permit: r.permit,
	}
	if out.mirror = r.opened(c.RepoID); out.mirror != nil {
		out.problem = gc.Check()
		return out
	}
	if out.mirror, out.problem = git.Open(gc); out.problem == nil {
		r.mu.Lock()
		r.mirrors[c.RepoID] = out.mirror
		r.mu.Unlock()
	}
	return out
}

// opened returns the mirror of a repository, nil if none is open.
func (r *repositories) opened(repoID string) *git.Repo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirrors[repoID]
}

// use replaces the configured repositories. No trigger may run.
func (r *repositories) use(ctx context.Context, next []repository) {
	for i := range next {
		n := &next[i]
		if n.problem != nil {
			continue
		}
		if n.problem = n.mirror.Follow(ctx, n.config.Remote, n.config.Branch, n.auth); n.problem != nil {
			r.logger.Error("a repository cannot be watched; trying again", "repo", n.config.RepoID, "error", n.problem)
		}
	}
	r.mu.Lock()
	r.configured = next
	r.mu.Unlock()
}

// watchable returns the repositories that can be watched, and for the others the reason by
// ID.
func (r *repositories) watchable() (out []trigger.Repository, problems map[string]error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	problems = map[string]error{}
	for _, c := range r.configured {
		if c.problem != nil {
			problems[c.config.RepoID] = c.problem
			continue
		}
		out = append(out, trigger.Repository{Config: c.config, Git: c.mirror})
	}
	return out, problems
}

// Limits of the wait for empty mirrors after a start.
const (
	mirrorPatience = time.Minute // for all of them
	mirrorRetry    = 2 * time.Second
)

// fetched returns run, delayed until the mirrors have the commits of active deployments: after a
// restore, or in place of a damaged one, a mirror is empty, that of a replica which has stood by is
// behind, and a resumed deployment could not read its commit. It waits at most mirrorPatience for
// remotes, because other deployments wait, too.
func (r *repositories) fetched(st *store.Store, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		begun, err := st.DeploymentsIn(ctx, deploy.Planned, deploy.Running, deploy.RollingBack)
		if err != nil && ctx.Err() == nil {
			r.logger.Warn("cannot read which mirrors are needed first", "error", err)
		}
		waiting, cancel := context.WithTimeout(ctx, mirrorPatience)
		defer cancel()
		var group sync.WaitGroup
		seen := map[string]bool{}
		for _, d := range begun {
			mirror := r.opened(d.Git.RepoID)
			if mirror == nil || seen[d.Git.RepoID] || hasCommit(mirror, d.Trigger.Commit.Hash) {
				continue
			}
			seen[d.Git.RepoID] = true
			group.Go(func() { r.fill(waiting, d.Git.RepoID, mirror) })
		}
		group.Wait()
		return run(ctx)
	}
}

// fill fetches a repository into its mirror, with retries until ctx ends.
func (r *repositories) fill(ctx context.Context, repoID string, mirror *git.Repo) {
	for {
		_, _, err := mirror.Sync(ctx)
		if err == nil {
			return
		}
		timer := time.NewTimer(mirrorRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				r.logger.Warn("a mirror lacks commits, and deployments that go on need them", "repo", repoID, "error", err)
			}
			return
		}
	}
}

// fillAll is the component of a replica that shares the work. It fetches the mirrors once, because the
// trigger follows only those of its repositories. Later commits are fetched when they are read.
func (r *repositories) fillAll(ctx context.Context) error {
	r.mu.Lock()
	mirrors := maps.Clone(r.mirrors)
	r.mu.Unlock()
	var group sync.WaitGroup
	for id, mirror := range mirrors {
		if !hasBeenRead(mirror) {
			group.Go(func() { r.fill(ctx, id, mirror) })
		}
	}
	group.Wait()
	<-ctx.Done()
	return nil
}

// hasCommit reports whether a mirror has a commit.
func hasCommit(mirror *git.Repo, hash string) bool {
	_, err := mirror.At(hash)
	return err == nil
}

// hasBeenRead reports whether a mirror is not empty.
func hasBeenRead(mirror *git.Repo) bool {
	_, ok := mirror.Head()
	return ok
}

// describe returns the configured repositories, whether they can be watched or not.
func (r *repositories) describe() []deploy.AgentRepository {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]deploy.AgentRepository, len(r.configured))
	for i, c := range r.configured {
		out[i] = deploy.AgentRepository{ID: c.config.RepoID, Remote: git.PublicRemote(c.config.Remote), Branch: c.config.Branch}
	}
	return out
}

// Tree implements source.Tree: the files of a commit in the mirror of its repository.
func (r *repositories) Tree(repoID, commit string) (fs.FS, error) {
	return readCommits(context.Background(), r, repoID, commit, func(m *git.Repo) (fs.FS, error) { return m.At(commit) })
}

// Base returns the commit of the branch that a preview's commit merges a pull request into.
func (r *repositories) Base(repoID, commit string) (string, error) {
	return readCommits(context.Background(), r, repoID, commit, func(m *git.Repo) (string, error) { return m.Base(commit) })
}

// Changed implements scheduler.Changes: the paths that differ between two commits of an
// application's repository.
func (r *repositories) Changed(ctx context.Context, p deploy.GitPath, from, to string) ([]string, error) {
	return readCommits(ctx, r, p.RepoID, from+".."+to, func(m *git.Repo) ([]string, error) { return m.Changed(ctx, from, to) })
}

// ChangedBy implements approval.Commits: the commits since base that changed one of the
// directories.
func (r *repositories) ChangedBy(ctx context.Context, repoID, base, commit string, dirs ...string) ([]deploy.Commit, error) {
	return readCommits(ctx, r, repoID, base+".."+commit, func(m *git.Repo) ([]deploy.Commit, error) { return m.ChangedBy(ctx, base, commit, dirs...) })
}

// CommitObject returns the bytes of a commit object in the mirror of its
// repository.
func (r *repositories) CommitObject(repoID, commit string) ([]byte, error) {
	return readCommits(context.Background(), r, repoID, commit, func(m *git.Repo) ([]byte, error) { return m.CommitObject(commit) })
}

// mirror returns the open mirror of a repository.
func (r *repositories) mirror(repoID string) (*git.Repo, error) {
	r.mu.Lock()
	mirror, configured := r.mirrors[repoID], r.configured
	r.mu.Unlock()
	if mirror != nil {
		return mirror, nil
	}
	for _, c := range configured {
		if c.config.RepoID == repoID {
			return nil, deploy.Errorf(deploy.Unavailable, "repository %q cannot be read: %w", repoID, c.problem)
		}
	}
	return nil, deploy.Errorf(deploy.Invalid, "repository %q is not in the agent's configuration", repoID)
}

// Close closes every mirror.
func (r *repositories) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for id, mirror := range r.mirrors {
		if err := mirror.Close(); err != nil {
			errs = append(errs, fmt.Errorf("repository %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}
