package trigger

import (
	"cmp"
	"context"
	"io/fs"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source"
)

// Foresee returns the applications that a merge would affect as the head of its
// repository's branch, ordered by directory: those that it would deploy, those that it adds
// and the agent's configuration selects, those whose configuration it makes unusable, and
// those that it removes.
//
// Only the changes of the merge count, not earlier ones that are not deployed yet.
// Applications whose spec.trigger.onCommit is disabled are omitted, and so are disabled and
// deleted ones. Signatures are not checked, because the future head commit does not exist
// yet.
//
// Foresee stores nothing and may be called while the trigger runs. The error is of kind
// Invalid if the repository is not watched.
func (t *Trigger) Foresee(ctx context.Context, repoID string, m *git.Merge) ([]deploy.AffectedApplication, error) {
	w := t.watchers[repoID]
	if w == nil {
		return nil, deploy.Errorf(deploy.Invalid, "repository %q is not watched", repoID)
	}
	before, err := w.repo.Git.At(m.Base.Hash)
	if err != nil {
		return nil, err
	}
	found, err := source.Candidates(ctx, m.FS(), t.Kinds)
	if err != nil {
		return nil, err
	}
	apps, err := w.applications(ctx)
	if err != nil {
		return nil, err
	}
	places := deploy.NewPlaces(maps.Values(apps))
	all := make([]entry, len(found))
	for i, candidate := range found {
		all[i] = newEntry(w.repo, candidate)
	}
	var out []deploy.AffectedApplication
	for _, e := range all {
		id := places.ID(e.git)
		app, known := apps[id]
		delete(apps, id)
		if app.Deleted || app.Disabled || !known && !w.takes(e, all) {
			continue
		}
		affected, ok, err := w.foresee(ctx, app, e, id, m)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, affected)
		}
	}
	for _, app := range apps {
		_, err := fs.Stat(before, app.Git.ConfigPath())
		if err == nil && !app.Deleted && !app.Disabled {
			out = append(out, deploy.AffectedApplication{Application: app, Removed: true})
		}
	}
	slices.SortFunc(out, func(a, b deploy.AffectedApplication) int {
		return cmp.Or(cmp.Compare(a.Application.Git.Dir, b.Application.Git.Dir), cmp.Compare(a.Application.Git.ConfigFile, b.Application.Git.ConfigFile))
	})
	return out, nil
}

// foresee describes one application after the merge. ok is false if the merge does not
// affect it. known is the zero value for an application that the merge adds.
func (w *watcher) foresee(ctx context.Context, known deploy.Application, e entry, id string, m *git.Merge) (a deploy.AffectedApplication, ok bool, err error) {
	a.Application, a.Problem = w.describe(known, e, id)
	if known.ID == "" {
		return a, a.Problem != nil || !e.candidate.Config.Trigger.OnCommit.Disabled, nil
	}
	known.EvaluatedCommit = m.Base.Hash
	if a.Problem == nil {
		reason, err := w.reasonToDeploy(ctx, known, e, m.Changed)
		return a, reason != "", err
	}
	changed, err := m.Changed(ctx, m.Base.Hash)
	_, ok = config.OnCommit{}.Touched(known.Git.Dir, changed)
	return a, ok, err
}
