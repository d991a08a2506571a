package trigger

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// maxSlowDown bounds how much longer than the interval a failing repository is
// left alone.
const maxSlowDown = 8

// watcher watches one repository. All its work is done by the goroutine of run.
type watcher struct {
	*Trigger
	repo Repository
	log  *slog.Logger

	signal   chan struct{}
	mu       sync.Mutex
	commands map[string]deploy.Command // handed over and not yet looked at

	catalog  *catalog          // of the last head that was looked at
	pinned   map[string]string // by application ID: the commit kept as its last success
	failures int               // looks that failed in a row
	lastErr  string            // what was logged last, so that an outage is logged once
}

func newWatcher(t *Trigger, r Repository) *watcher {
	return &watcher{
		Trigger: t, repo: r, log: t.Logger.With("repo", r.Config.RepoID),
		signal: make(chan struct{}, 1), commands: map[string]deploy.Command{}, pinned: map[string]string{},
	}
}

// wake makes the watcher look now, and answer commands.
func (w *watcher) wake(commands []deploy.Command) {
	w.mu.Lock()
	for _, c := range commands {
		w.commands[c.ID] = c
	}
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *watcher) takeCommands() map[string]deploy.Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.commands
	w.commands = map[string]deploy.Command{}
	return taken
}

func (w *watcher) run(ctx context.Context) {
	for {
		w.look(ctx)
		timer := time.NewTimer(w.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.signal:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pause is the interval with 10 % jitter, so that repositories of one host are
// not asked in step; a failing repository is asked less and less often.
func (w *watcher) pause() time.Duration {
	slow := min(1<<min(w.failures, 10), maxSlowDown)
	return time.Duration(float64(w.Interval) * float64(slow) * (0.9 + 0.2*rand.Float64()))
}

// look is one pass over the repository. A sync command is answered for a head
// at least as new as the command.
func (w *watcher) look(ctx context.Context) {
	commands := w.takeCommands()
	head, lookup := w.refresh(ctx)
	err := lookup
	if lookup == nil {
		err = w.onCommit(ctx, head)
	}
	w.report(ctx, err)
	if ctx.Err() != nil {
		return // open commands are handed over again after the restart
	}
	for _, c := range slices.SortedFunc(maps.Values(commands), func(a, b deploy.Command) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	}) {
		w.onCommand(ctx, head, c, lookup)
	}
}

// refresh brings the mirror to the branch's head and the catalog to that commit.
func (w *watcher) refresh(ctx context.Context) (deploy.Commit, error) {
	head, _, err := w.repo.Git.Sync(ctx)
	if err != nil {
		return deploy.Commit{}, err
	}
	if w.catalog != nil && w.catalog.commit.Hash == head.Hash {
		return head, nil
	}
	catalog, err := readCatalog(w.repo, head)
	if err != nil {
		return deploy.Commit{}, err
	}
	if err := w.register(ctx, catalog); err != nil {
		return deploy.Commit{}, err
	}
	w.catalog = catalog
	return head, nil
}

// report logs an outage when it begins, when its cause changes and when it ends.
func (w *watcher) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.failures++
		if text := err.Error(); text != w.lastErr {
			w.log.Error("cannot follow the repository; trying again", "error", err)
			w.lastErr = text
		}
	case w.lastErr != "":
		w.log.Info("the repository can be followed again")
		w.failures, w.lastErr = 0, ""
	}
}
