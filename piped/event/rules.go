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

// rule is an event rule that was read from a commit.
type rule struct {
	config.EventRule
	file string // file that contains the rule
	dir  string // base of its file paths
}

func (r rule) matches(e deploy.RegisteredEvent) bool {
	return r.Matcher.Name == e.Name && maps.Equal(r.Matcher.Labels, e.Labels)
}

// ruleSet holds the rules of a commit.
type ruleSet struct {
	commit deploy.Commit
	files  fs.FS
	rules  []rule
	// signed is the name of an application that requires signed commits, or "".
	signed string
}

// of returns the rules that match e: those that request a pull request, or those that do not.
func (s *ruleSet) of(e deploy.RegisteredEvent, pullRequest bool) []rule {
	var out []rule
	for _, r := range s.rules {
		if r.Handler.Config.MakePullRequest == pullRequest && r.matches(e) {
			out = append(out, r)
		}
	}
	return out
}

// readRules returns the rules of a commit: first those of the files below .pipe/, by file
// name, then those of applications, by configuration path. Unreadable files are logged
// and skipped.
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

// Limits of rule files.
const (
	maxRuleFiles = 1000
	maxRuleBytes = 16 << 20 // total
)

// readShared reads the rule files below .pipe/, PipeCD's older form.
func (w *Watcher) readShared(ctx context.Context, repo Repository, s *ruleSet) error {
	everywhere := func(string) bool { return true }
	isRuleFile := func(name string) bool { return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) }
	names, err := source.FindFiles(ctx, s.files, config.SharedDir, everywhere, isRuleFile, maxRuleFiles)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no .pipe directory
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
			continue // symbolic links are not followed
		}
		data, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		if left -= len(data); left < 0 {
			return deploy.Errorf(deploy.Invalid, "%s: the event rule files exceed %d bytes in total; remove some", name, maxRuleBytes)
		}
		rules, _, err := config.ParseEventRules(name, data)
		w.logBroken(repo.ID, name, err)
		for _, r := range rules {
			r.Handler.Config.CommitMessage = repo.Files.CommitMessage
			s.rules = append(s.rules, rule{EventRule: r, file: name, dir: "."})
		}
	}
	return nil
}

// applications returns the enabled applications of a repository, by configuration path.
func (w *Watcher) applications(ctx context.Context, repoID string) ([]deploy.Application, error) {
	apps, _, err := w.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: repoID})
	apps = slices.DeleteFunc(apps, deploy.Application.IsPreview)
	slices.SortFunc(apps, func(a, b deploy.Application) int { return cmp.Compare(a.Git.ConfigPath(), b.Git.ConfigPath()) })
	return apps, err
}

// readApplication adds the rules of an application, unless its tenancy rules reject the
// commit.
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
			return nil // the trigger reports it
		}
		return err
	}
	if descends, err := w.descends(ctx, repo, app, s.commit.Hash); err != nil || !descends {
		return err // the trigger also reports it
	}
	c, err := w.Kinds.ParseApplication(name, data)
	w.logBroken(repo.ID, name, err)
	if err != nil {
		return nil
	}
	for _, r := range c.EventWatcher {
		s.rules = append(s.rules, rule{EventRule: r, file: name, dir: app.Git.Dir})
	}
	return nil
}

// descends reports whether head descends from the last evaluated commit. It also returns true
// if the tenancy rules of the application do not require that, or if no commit was evaluated.
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

// logBroken logs an error of a rule file once.
func (w *Watcher) logBroken(repoID, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := repoID + "/" + name
	if err == nil {
		delete(w.logged, key)
		return
	}
	if w.logged[key] != err.Error() {
		w.Logger.Warn("cannot read event rules; this file is skipped", "repo", repoID, "file", name, "error", err)
	}
	w.logged[key] = err.Error()
}
