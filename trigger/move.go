package trigger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

// move is a possible move of an application's configuration to another path.
type move struct {
	app deploy.Application
	to  entry
}

// moveApplications finds the applications that were moved within the repository, stores
// their new paths, and updates apps. An application was moved if one commit removes its
// configuration and adds one of the same name elsewhere. A configuration without a name
// must be in a directory with the same content. The application keeps its ID, and with it
// its history, its objects and its registration.
func (w *watcher) moveApplications(ctx context.Context, head deploy.Commit, entries []entry, apps map[string]deploy.Application) error {
	moves, err := w.unique(head, possibleMoves(w, entries, apps))
	if err != nil {
		return err
	}
	for _, m := range moves {
		moved, err := w.inOneCommit(ctx, m, head)
		if moved && err == nil {
			moved, err = w.counts(ctx, m, head)
		}
		if err != nil {
			return fmt.Errorf("find out whether application %s was moved to %s: %w", m.app.Name, m.to.git.ConfigPath(), err)
		}
		if !moved {
			continue
		}
		err = w.Store.MoveApplication(ctx, m.app.ID, m.app.Git, m.to.git)
		if deploy.IsKind(err, deploy.Conflict) {
			continue // the application was deleted meanwhile, or another one was added at the new path
		}
		if err != nil {
			return err
		}
		w.log.Info("application moved", "app", m.app.Name, "from", m.app.Git.ConfigPath(), "to", m.to.git.ConfigPath(), "commit", head.Short())
		if apps[m.app.ID], err = w.Store.Application(ctx, m.app.ID); err != nil {
			return err
		}
	}
	return nil
}

// nameless reports whether the configuration has no name. Then the application is named
// after its directory, and a move renames it.
func (m move) nameless() bool { return m.to.candidate.Config.Name == "" }

// possibleMoves pairs the applications whose configuration is gone with the
// configurations of the same name that belong to no application.
func possibleMoves(w *watcher, entries []entry, apps map[string]deploy.Application) (out []move) {
	places, present := map[string]bool{}, map[string]bool{}
	for _, app := range apps {
		places[app.Git.ConfigPath()] = !app.Deleted || places[app.Git.ConfigPath()]
	}
	for _, e := range entries {
		present[e.git.ConfigPath()] = true
	}
	for _, app := range apps {
		if app.Deleted || present[app.Git.ConfigPath()] || app.EvaluatedCommit == "" {
			continue
		}
		for _, e := range entries {
			if e.candidate.Err != nil || places[e.git.ConfigPath()] {
				continue
			}
			name := e.candidate.Config.Name
			if name != app.Name && (name != "" || app.Name != deploy.NameOf("", app.Registration, app.Git)) {
				continue
			}
			if app.Registration.By == "" && !w.takes(e, entries) {
				continue // the agent's configuration does not select the new path
			}
			out = append(out, move{app, e})
		}
	}
	slices.SortFunc(out, func(a, b move) int {
		return strings.Compare(a.app.ID+a.to.git.ConfigPath(), b.app.ID+b.to.git.ConfigPath())
	})
	return out
}

// unique returns the unambiguous moves: the only one of their application and the only one
// to their path. Where names are ambiguous, a move counts if the content of the directory
// did not change.
func (w *watcher) unique(head deploy.Commit, moves []move) ([]move, error) {
	clear := func(ms []move, m move) bool {
		rivals := 0
		for _, o := range ms {
			if o.app.ID == m.app.ID || o.to.git == m.to.git {
				rivals++
			}
		}
		return rivals == 1
	}
	var out, same []move
	named := slices.DeleteFunc(slices.Clone(moves), move.nameless)
	for _, m := range moves {
		if !m.nameless() && clear(named, m) {
			out = append(out, m)
			continue
		}
		before, err := w.repo.Git.TreeHash(m.app.EvaluatedCommit, m.app.Git.Dir)
		if deploy.IsKind(err, deploy.NotFound) {
			continue // the branch was rewritten
		}
		if err != nil {
			return nil, err
		}
		after, err := w.repo.Git.TreeHash(head.Hash, m.to.git.Dir)
		if err != nil {
			return nil, err
		}
		if before == after && m.app.Git.ConfigFile == m.to.git.ConfigFile {
			same = append(same, m)
		}
	}
	for _, m := range same {
		if clear(same, m) {
			out = append(out, m)
		}
	}
	return out, nil
}

// inOneCommit reports whether one commit since the last evaluated one removes the old
// configuration and adds the new one.
func (w *watcher) inOneCommit(ctx context.Context, m move, head deploy.Commit) (bool, error) {
	base := m.app.EvaluatedCommit
	steps, follows, err := w.repo.Git.Since(ctx, base, head.Hash)
	if deploy.IsKind(err, deploy.NotFound) {
		return false, nil // the branch was rewritten, and the mirror lacks the last evaluated commit
	}
	if err != nil {
		return false, err
	}
	if !follows { // the branch was rewritten: its new head is one step from the old one
		steps = []git.Step{{Commit: head.Hash, Parent: base}}
	}
	for _, s := range steps {
		var there [4]bool
		for i, q := range []struct{ commit, file string }{
			{s.Parent, m.app.Git.ConfigPath()}, {s.Commit, m.app.Git.ConfigPath()}, {s.Parent, m.to.git.ConfigPath()}, {s.Commit, m.to.git.ConfigPath()},
		} {
			if there[i], err = w.has(q.commit, q.file); err != nil {
				return false, err
			}
		}
		if there[2] != there[3] { // the newest commit that adds or removes the new file
			return there == [4]bool{true, false, false, true}, nil
		}
	}
	return false, nil
}

// counts reports whether the head is accepted for the application at both paths; see
// headRefusal.
func (w *watcher) counts(ctx context.Context, m move, head deploy.Commit) (bool, error) {
	for _, at := range []deploy.GitPath{m.app.Git, m.to.git} {
		if refused, err := w.headRefusal(ctx, m.app, at, head.Hash); refused != nil || err != nil {
			return false, err
		}
	}
	return true, nil
}

// has reports whether a commit contains a file.
func (w *watcher) has(commit, file string) (bool, error) {
	tree, err := w.repo.Git.At(commit)
	if err != nil {
		return false, err
	}
	switch _, err = fs.Stat(tree, file); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("look for %s in commit %s: %w", file, deploy.ShortHash(commit), err)
}
