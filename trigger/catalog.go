package trigger

import (
	"context"
	"fmt"
	"maps"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source"
)

// catalog holds the application configurations of one commit of a repository.
type catalog struct {
	commit  deploy.Commit
	found   []entry
	entries map[string]entry // the found ones, by application ID
	changes changeCache      // between earlier commits and this one
}

// entry is one application configuration of the commit.
type entry struct {
	git       deploy.GitPath
	candidate source.Candidate
	refused   error // why the commit is refused for it; then candidate has this error and no Config
}

// readCatalog reads every application configuration of the commit, and stores the moves of
// applications that it finds. The error is of kind Invalid if the commit exceeds the read
// limits.
func (w *watcher) readCatalog(ctx context.Context, head deploy.Commit) (*catalog, error) {
	tree, err := w.repo.Git.At(head.Hash)
	if err != nil {
		return nil, err
	}
	found, err := source.Candidates(ctx, tree, w.Kinds)
	if err != nil {
		return nil, fmt.Errorf("find applications in repository %s at commit %s: %w", w.repo.Config.RepoID, head.Short(), err)
	}
	apps, err := w.applications(ctx)
	if err != nil {
		return nil, err
	}
	c := &catalog{commit: head, changes: changeCache{repo: w.repo.Git, head: head.Hash, byBase: map[string][]string{}}}
	places := deploy.NewPlaces(maps.Values(apps))
	for _, candidate := range found {
		e := newEntry(w.repo, candidate)
		known, _ := places.At(e.git)
		refused, err := w.headRefusal(ctx, known, e.git, head.Hash)
		if err != nil {
			return nil, fmt.Errorf("find out whether commit %s counts for %s: %w", head.Short(), e.git.ConfigPath(), err)
		}
		e.refuse(refused)
		c.found = append(c.found, e)
	}
	if err := w.moveApplications(ctx, head, c.found, apps); err != nil {
		return nil, err
	}
	c.identify(apps)
	return c, nil
}

// identify maps the entries to their applications.
func (c *catalog) identify(apps map[string]deploy.Application) {
	places := deploy.NewPlaces(maps.Values(apps))
	c.entries = make(map[string]entry, len(c.found))
	for _, e := range c.found {
		c.entries[places.ID(e.git)] = e
	}
}

// readEntry returns the application configuration at a Git path of a commit. Its field
// refused is set if the commit is refused for the application. ok is false if the commit
// does not contain the file.
func (w *watcher) readEntry(ctx context.Context, commit deploy.Commit, p deploy.GitPath) (e entry, ok bool, err error) {
	tree, err := w.repo.Git.At(commit.Hash)
	if err != nil {
		return e, false, err
	}
	candidate := source.CandidateAt(tree, p.ConfigPath(), w.Kinds)
	e = newEntry(w.repo, candidate)
	return e, !deploy.IsKind(candidate.Err, deploy.NotFound), w.screen(ctx, &e, commit.Hash)
}

func newEntry(r Repository, c source.Candidate) entry {
	return entry{candidate: c, git: deploy.GitPath{
		RepoID: r.Config.RepoID, Remote: git.PublicRemote(r.Config.Remote), Branch: r.Config.Branch, Dir: c.Dir, ConfigFile: c.ConfigFile,
	}}
}

// problem returns the provider that a known application is deployed to from this commit,
// or why it cannot be deployed.
func (e entry) problem(t *Trigger, known deploy.Application) (provider string, err error) {
	if e.candidate.Err != nil {
		return "", e.candidate.Err
	}
	cfg := e.candidate.Config
	if known.LastTriggered != nil && known.Kind != cfg.Kind {
		return "", deploy.Errorf(deploy.Invalid, "%s: kind: the application is of kind %s, and the file is of kind %s, which cannot change: restore the kind, or delete the application and add it again",
			e.git.ConfigPath(), known.Kind, cfg.Kind)
	}
	if provider, err = cfg.ProviderOf(known, t.providersOf(cfg.Kind)); err != nil {
		return "", fmt.Errorf("%s: %w", e.git.ConfigPath(), err)
	}
	return provider, nil
}
