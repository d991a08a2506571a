package trigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/ownership"
)

// reconcileRest, plus reconcileRestEach for each application, is the minimum time between
// two comparisons of the store with an unchanged catalog. Running deployments write often,
// and each comparison reads all applications.
const (
	reconcileRest     = 500 * time.Millisecond
	reconcileRestEach = 5 * time.Millisecond
)

// watcher watches one repository. All its work is done by the goroutine of run.
type watcher struct {
	*Trigger
	repo Repository
	log  *slog.Logger

	signal chan struct{}
	passed chan struct{} // closed when the first pass has ended
	ended  func()        // closes passed
	stale  atomic.Bool   // an application or a deployment was written since the last pass
	soon   atomic.Bool   // a pass is scheduled; see pollSoon
	mu     sync.Mutex
	inbox  inbox
	parked bool // another replica watches the repository: the inbox stays empty
	// problem is why the last pass failed, for Trigger.Problem; nil after a success.
	problem atomic.Pointer[Problem]

	*memory
}

// memory is what a watcher knows from its passes. All of it can be found again from the store and the
// repository.
type memory struct {
	catalog    *catalog             // of the last head that was evaluated
	paused     bool                 // the agent is disabled: nothing is triggered
	reconciled bool                 // the store agrees with the catalog
	rested     time.Time            // end of the pause before the next comparison
	drifted    map[string]time.Time // by application ID: when to evaluate it for self-healing; zero: at once
	due        time.Time            // earliest time in drifted at which a pass is needed; zero: none
	roster     []deploy.Application // the applications for chains, read once in a pass
	pinned     map[string]string    // by application ID: the pinned commit of its last success
	warned     map[string][]string  // by application ID: the last logged warnings
	silent     silences             // clusters and sources whose applications are held
	lookups    lookups              // by provider
	reviewAt   time.Time            // when pending adoptions are evaluated again; zero: there are none
	refused    error                // why the last good commit is evaluated instead of the head
	unread     unreadHead           // the last head that exceeded the read limits
	failures   int                  // consecutive failed passes
	pace       pace                 // of the passes that nothing requests
	lastErr    string               // the last logged error, so that an outage is logged once
}

func newMemory(t *Trigger) *memory {
	m := &memory{
		pace: pace{interval: t.Interval}, drifted: map[string]time.Time{}, pinned: map[string]string{}, warned: map[string][]string{},
		silent: silences{by: map[respondent]silence{}}, lookups: lookups{},
	}
	for _, provider := range t.Providers {
		m.lookups[provider] = background.New[lookupKey, lookup](background.Config{Patience: t.Patience, AtOnce: maxLookups})
	}
	return m
}

// inbox contains the requests for the next pass.
type inbox struct {
	poll     bool
	anew     bool // compare the store with the catalog even if neither has changed
	commands map[string]deploy.Command
	drifted  []string
}

func (in *inbox) add(commands ...deploy.Command) {
	if in.commands == nil {
		in.commands = map[string]deploy.Command{}
	}
	for _, c := range commands {
		in.commands[c.ID] = c
	}
}

func newWatcher(t *Trigger, r Repository) *watcher {
	w := &watcher{
		Trigger: t, repo: r, log: t.Logger.With("repo", r.Config.RepoID), signal: make(chan struct{}, 1), passed: make(chan struct{}),
		parked: t.shared, memory: newMemory(t),
	}
	w.ended = sync.OnceFunc(func() { close(w.passed) })
	return w
}

// close ends the lookups that run in the background.
func (w *watcher) close() {
	for _, l := range w.lookups {
		l.Close()
	}
}

// wake requests a pass now, which also answers the commands.
func (w *watcher) wake(commands []deploy.Command) {
	w.hand(func(in *inbox) {
		in.poll = true
		in.add(commands...)
	})
}

// reconsider requests a pass now that evaluates all applications again, even if the head
// has not changed.
func (w *watcher) reconsider() {
	w.hand(func(in *inbox) { in.poll, in.anew = true, true })
}

// pollDelay is how long the ends of lookups are batched.
const pollDelay = 300 * time.Millisecond

// pollSoon is reconsider, debounced by pollDelay.
func (w *watcher) pollSoon() {
	if w.soon.CompareAndSwap(false, true) {
		time.AfterFunc(pollDelay, func() {
			w.soon.Store(false)
			w.reconsider()
		})
	}
}

// review requests that these drifted applications are evaluated for self-healing, with a
// pass if one is due.
func (w *watcher) review(ids []string) {
	w.hand(func(in *inbox) { in.drifted = append(in.drifted, ids...) })
}

// hand changes the inbox and wakes the watcher, unless another replica watches the repository.
func (w *watcher) hand(put func(*inbox)) {
	w.fill(put)
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// fill changes the inbox without waking the watcher.
func (w *watcher) fill(put func(*inbox)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.parked {
		put(&w.inbox)
	}
}

// take returns the content of the inbox and empties it.
func (w *watcher) take() inbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.inbox
	w.inbox = inbox{}
	return taken
}

// hold watches the repository while this replica has the right to, until ctx ends.
func (w *watcher) hold(ctx context.Context) {
	defer func() { w.close() }()
	err := ownership.Hold(ctx, w.Rights, w.repo.Config.RepoID, func(ctx context.Context, moving <-chan struct{}) error {
		if w.shared {
			w.begin()
			defer w.park()
		}
		return w.run(ctx, moving)
	})
	if err != nil { // cannot happen
		w.log.Error("the repository is not watched until the agent is restarted", "error", err)
	}
}

// begin forgets what was known before another replica watched the repository, and requests the open
// work.
func (w *watcher) begin() {
	w.close()
	w.memory = newMemory(w.Trigger)
	w.mu.Lock()
	w.parked, w.inbox = false, inbox{}
	w.mu.Unlock()
	select {
	case w.rescans <- struct{}{}:
	default:
	}
}

// park leaves the repository to another replica.
func (w *watcher) park() {
	w.problem.Store(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked, w.inbox = true, inbox{}
}

func (w *watcher) isParked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked
}

// run makes passes until ctx ends or moving is closed: at intervals, on request, and when an
// application is due for healing. It returns nil.
func (w *watcher) run(ctx context.Context, moving <-chan struct{}) error {
	poll, heal := time.NewTimer(0), time.NewTimer(0)
	heal.Stop()
	defer poll.Stop()
	defer heal.Stop()
	for {
		run := true
		select {
		case <-ctx.Done():
			return nil
		case <-moving:
			return nil
		case <-poll.C:
		case <-heal.C:
		case <-w.signal:
			run = w.passRequired(ctx)
		}
		if run {
			began := w.Now()
			w.poll(ctx)
			w.ended()
			now := w.Now()
			poll.Reset(w.pace.next(now, max(0, now.Sub(began)), w.failures))
		}
		heal.Stop()
		if !w.due.IsZero() {
			heal.Reset(w.due.Sub(w.Now()))
		}
	}
}

// passRequired reports whether the inbox requires a pass: one was requested, or a drifted
// application is due for healing.
func (w *watcher) passRequired(ctx context.Context) bool {
	w.mu.Lock()
	poll, drifted := w.inbox.poll, w.inbox.drifted
	w.inbox.drifted = nil
	w.mu.Unlock()
	w.note(drifted)
	if poll {
		return true
	}
	due, err := w.selfHeal(ctx, nil)
	if w.due = due; err != nil && !ownership.Over(ctx, err) {
		w.log.Error("cannot review drifted applications; trying again", "error", err)
	}
	return !due.IsZero() && !due.After(w.Now())
}

// poll is one pass over the repository. A sync command is answered for a head at least as
// new as the command. While the agent is disabled, a pass registers applications and
// triggers nothing.
func (w *watcher) poll(ctx context.Context) {
	in := w.take()
	w.note(in.drifted)
	w.roster, w.due, w.reconciled = nil, time.Time{}, w.reconciled && !in.anew
	head, lookup := w.refresh(ctx)
	err := lookup
	if lookup == nil {
		if err = w.readPause(ctx); err == nil {
			err = w.evaluate(ctx, head)
		}
	}
	w.report(ctx, lookup, errors.Join(w.refused, err))
	if ctx.Err() != nil {
		return // open commands are handed over again after the restart
	}
	w.answer(ctx, head, slices.SortedFunc(maps.Values(in.commands), func(a, b deploy.Command) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	}), lookup)
}

// readPause reads whether the agent is disabled, and logs when that changes.
func (w *watcher) readPause(ctx context.Context) error {
	agent, err := w.Store.Agent(ctx)
	if err != nil || agent.Disabled == w.paused {
		return err
	}
	if w.paused = agent.Disabled; w.paused {
		w.log.Warn("the agent is disabled: nothing is triggered until it is enabled")
	} else {
		w.log.Info("the agent is enabled again")
	}
	return nil
}

// note schedules drifted applications for evaluation at once.
func (w *watcher) note(drifted []string) {
	for _, id := range drifted {
		w.drifted[id] = time.Time{}
	}
}

// refresh updates the mirror to the branch's head and the catalog to that commit, which it
// returns. If the head exceeds the read limits, both stay at the last good commit, and
// w.refused is the reason.
func (w *watcher) refresh(ctx context.Context) (deploy.Commit, error) {
	head, _, err := w.repo.Git.Sync(ctx)
	w.refused = nil
	if good, ok := w.repo.Git.Head(); ok && errors.Is(err, git.ErrRefused) {
		w.refused, head, err = err, good, nil
	}
	if err != nil {
		return deploy.Commit{}, err
	}
	if w.catalog != nil && w.catalog.commit.Hash == head.Hash {
		return head, nil
	}
	if w.catalog != nil && w.unread.commit != head.Hash {
		w.pace.moved = w.Now()
	}
	if w.unread.commit == head.Hash {
		return w.stay(w.unread.why)
	}
	catalog, err := w.readCatalog(ctx, head)
	if deploy.IsKind(err, deploy.Invalid) {
		w.unread = unreadHead{head.Hash, err}
		return w.stay(err)
	}
	if err != nil {
		return deploy.Commit{}, err
	}
	w.catalog, w.reconciled = catalog, false
	return head, nil
}

// unreadHead is a head that exceeds the limits for reading applications.
type unreadHead struct {
	commit string
	why    error
}

// stay returns the commit of the catalog, which stays in effect because the head cannot be
// read, and adds why to w.refused. Without a catalog it returns why.
func (w *watcher) stay(why error) (deploy.Commit, error) {
	if w.catalog == nil {
		return deploy.Commit{}, why
	}
	w.refused = errors.Join(w.refused, fmt.Errorf("%w; commit %s stays in effect", why, w.catalog.commit.Short()))
	return w.catalog.commit, nil
}

// evaluate decides for every application of the repository what the head and the live
// state require. A commit takes precedence over drift: a pass that deploys an application
// because of a commit does not heal it.
func (w *watcher) evaluate(ctx context.Context, head deploy.Commit) error {
	var err error
	now := w.Now()
	if !w.reconciled || w.silent.due(now) || !w.reviewAt.IsZero() && !now.Before(w.reviewAt) || !now.Before(w.rested) && w.stale.Swap(false) {
		w.stale.Store(false)
		err = w.reconcile(ctx, head)
		w.reconciled = err == nil
		w.rested = w.Now().Add(reconcileRest + time.Duration(len(w.catalog.entries))*reconcileRestEach)
	}
	if w.paused {
		return err
	}
	due, healErr := w.selfHeal(ctx, &head)
	w.due = due
	return errors.Join(err, healErr)
}

// reconcile makes the store agree with the catalog: it registers applications, lists
// candidates, and deploys the applications that the commits touch.
func (w *watcher) reconcile(ctx context.Context, head deploy.Commit) error {
	apps, err := w.applications(ctx)
	if err != nil {
		return err
	}
	w.catalog.identify(apps)
	w.pin(apps)
	err = errors.Join(w.register(ctx, apps), w.listCandidates(ctx, apps), w.setUnreadNotices(ctx, apps))
	if w.paused {
		return err
	}
	return errors.Join(err, w.onCommit(ctx, head, apps))
}

// report logs an outage when it begins, when its cause changes and when it ends. Only a
// repository that cannot be read is polled less often: an error of one application must
// not slow down the others.
func (w *watcher) report(ctx context.Context, lookup, err error) {
	if lookup == nil {
		w.failures = 0
	}
	switch {
	case ownership.Over(ctx, err):
	case err != nil:
		if lookup != nil {
			w.failures++
		}
		w.setProblem(err)
		if text := err.Error(); text != w.lastErr {
			w.log.Error("cannot follow the repository; trying again", "error", err)
			w.lastErr = text
		}
	case w.lastErr != "":
		w.problem.Store(nil)
		w.log.Info("the repository can be followed again")
		w.lastErr = ""
	}
}

// setProblem stores the problem for Trigger.Problem, with the time of its first failure.
func (w *watcher) setProblem(err error) {
	p := Problem{Err: err, Since: w.Now()}
	if before := w.problem.Load(); before != nil {
		p.Since = before.Since
	}
	w.problem.Store(&p)
}
