package event

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// rule is one that stands in a commit.
type rule struct {
	config.EventRule
	file string // where it stands
	dir  string // the files that it names are relative to it
}

func (r rule) matches(e deploy.RegisteredEvent) bool {
	return r.Matcher.Name == e.Name && maps.Equal(r.Matcher.Labels, e.Labels)
}

// ruleSet is what a commit says.
type ruleSet struct {
	commit deploy.Commit
	files  fs.FS
	rules  []rule
	// signed names an application for which only signed commits count, "" if there is
	// none.
	signed string
}

// of returns the rules for an event, those that want a pull request or those that
// do not.
func (s *ruleSet) of(e deploy.RegisteredEvent, pullRequest bool) []rule {
	var out []rule
	for _, r := range s.rules {
		if r.Handler.Config.MakePullRequest == pullRequest && r.matches(e) {
			out = append(out, r)
		}
	}
	return out
}

// readRules returns the rules of a commit: those of the files below .pipe/, by
// name, and then those of the applications, by their configurations' paths. What
// cannot be read is said in the log and holds up nothing else.
func (w *Watcher) readRules(ctx context.Context, repo Repository, head deploy.Commit) (*ruleSet, error) {
	files, err := repo.Git.At(head.Hash)
	if err != nil {
		return nil, err
	}
	s := &ruleSet{commit: head, files: files}
	if err := w.readShared(ctx, repo, s); err != nil {
		return nil, fmt.Errorf("read the event rules of repository %s at commit %s: %w", repo.ID, head.Short(), err)
	}
	apps, err := w.applications(ctx, repo.ID)
	if err != nil {
		return nil, err
	}
	for _, app := range apps {
		if err := w.readApplication(ctx, repo, s, app); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Bounds of the files that event rules are read from.
const (
	maxRuleFiles = 1000
	maxRuleBytes = 16 << 20 // of all of them
)

// readShared reads PipeCD's older form.
func (w *Watcher) readShared(ctx context.Context, repo Repository, s *ruleSet) error {
	everywhere := func(string) bool { return true }
	isRuleFile := func(name string) bool { return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) }
	names, err := source.FindFiles(ctx, s.files, config.SharedDir, everywhere, isRuleFile, maxRuleFiles)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no such directory
	}
	if err != nil {
		return err
	}
	left := maxRuleBytes
	for _, name := range names {
		if !repo.Files.Reads(strings.TrimPrefix(name, config.SharedDir+"/")) {
			continue
		}
		info, err := fs.Lstat(s.files, name)
		if err != nil || !info.Mode().IsRegular() {
			continue // a symbolic link, which is not followed
		}
		data, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		if left -= len(data); left < 0 {
			return deploy.Errorf(deploy.Invalid, "%s: the files of event rules have more than %d bytes; remove some", name, maxRuleBytes)
		}
		rules, _, err := config.ParseEventRules(name, data)
		w.sayBroken(repo.ID, name, err)
		for _, r := range rules {
			r.Handler.Config.CommitMessage = repo.Files.CommitMessage
			s.rules = append(s.rules, rule{EventRule: r, file: name, dir: "."})
		}
	}
	return nil
}

// applications returns the enabled applications of a repository by the paths of
// their configurations.
func (w *Watcher) applications(ctx context.Context, repoID string) ([]deploy.Application, error) {
	apps, _, err := w.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: repoID})
	slices.SortFunc(apps, func(a, b deploy.Application) int { return cmp.Compare(a.Git.ConfigPath(), b.Git.ConfigPath()) })
	return apps, err
}

// readApplication adds the rules of an application, unless the commit does not
// count for it.
func (w *Watcher) readApplication(ctx context.Context, repo Repository, s *ruleSet, app deploy.Application) error {
	for _, t := range w.Tenancy.Tenant(app.Git) {
		if t.VerifyCommits != nil {
			s.signed = app.Name
		}
	}
	name := app.Git.ConfigPath()
	data, err := fs.ReadFile(s.files, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Contains(data, []byte("eventWatcher")) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := w.Tenancy.Signer(ctx, app.Git, s.commit.Hash); err != nil {
		if deploy.IsKind(err, deploy.Invalid) {
			return nil // the trigger says so
		}
		return err
	}
	if descends, err := w.descends(ctx, repo, app, s.commit.Hash); err != nil || !descends {
		return err // the trigger says so, too
	}
	c, err := config.ParseApplication(name, data)
	w.sayBroken(repo.ID, name, err)
	if err != nil {
		return nil
	}
	for _, r := range c.EventWatcher {
		s.rules = append(s.rules, rule{EventRule: r, file: name, dir: app.Git.Dir})
	}
	return nil
}

// descends reports whether a head descends from the commit that was evaluated last for
// an application whose rules require that.
func (w *Watcher) descends(ctx context.Context, repo Repository, app deploy.Application, head string) (bool, error) {
	required := slices.ContainsFunc(w.Tenancy.Tenant(app.Git), func(r config.TenancyRule) bool {
		return r.VerifyCommits != nil && r.VerifyCommits.RequireDescendant
	})
	if !required || app.EvaluatedCommit == "" {
		return true, nil
	}
	_, ok, err := repo.Git.Since(ctx, app.EvaluatedCommit, head)
	if deploy.IsKind(err, deploy.NotFound) {
		return false, nil
	}
	return ok, err
}

// sayBroken says once that a file cannot be read.
func (w *Watcher) sayBroken(repoID, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := repoID + "/" + name
	if err == nil {
		delete(w.said, key)
		return
	}
	if w.said[key] != err.Error() {
		w.Logger.Warn("event rules cannot be read; those of other files are", "repo", repoID, "file", name, "error", err)
	}
	w.said[key] = err.Error()
}
