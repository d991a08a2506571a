package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/deploy"
)

// dialer opens conversations with one remote.
type dialer interface {
	// dial begins a conversation, which ends when ctx does.
	dial(ctx context.Context) (session, error)
	close() error
}

// session is one conversation: head, then fetch if the head is new.
type session interface {
	// head returns the commit of a branch, the zero hash when there is none.
	head(ctx context.Context, branch string) (plumbing.Hash, error)
	// fetch adds the commit want and all it refers to; it calls progress
	// whenever something was received.
	fetch(ctx context.Context, want plumbing.Hash, into *objects, progress func()) error
	io.Closer
}

func newDialer(a address, auth Auth) (dialer, error) {
	switch a.endpoint.Protocol {
	case "file":
		return &localDialer{a.endpoint.Path}, nil
	case "ssh":
		return newSSHDialer(a, auth)
	default:
		return newHTTPDialer(a, auth), nil
	}
}

// RemoteHead asks the remote for the head of the tracked branch and fetches
// nothing. The kind is Invalid when the branch does not exist, else
// Unavailable; an SSH host that is not known is named with the line to add to
// known_hosts.
func (r *Repo) RemoteHead(ctx context.Context) (string, error) {
	w := watch(ctx, r.cfg.Timeout)
	defer w.stop()
	s, h, err := r.ask(w)
	if err != nil {
		return "", err
	}
	_ = s.Close() // the answer is there
	return h.String(), nil
}

// Sync asks the remote for the head of the tracked branch, fetches it with its
// history if the mirror lacks it, and makes it Head. It returns the commit and
// whether it is another than the last Sync's, before a restart too. Rewritten
// branches are followed. Errors are as RemoteHead's and leave the mirror and
// Head as they were.
//
// One Sync runs at a time. Callers that come while it runs share the next one,
// so that each result is at least as new as its call.
func (r *Repo) Sync(ctx context.Context) (c deploy.Commit, moved bool, err error) {
	f, err := r.flights.join(ctx, r.sync)
	if err != nil {
		return deploy.Commit{}, false, deploy.Errorf(deploy.Unavailable, "sync %s: %w", r.Remote(), err)
	}
	return f.commit, f.moved, f.err
}

func (r *Repo) sync(ctx context.Context, f *flight) {
	w := watch(ctx, r.cfg.Timeout)
	defer w.stop()
	s, h, err := r.ask(w)
	if err != nil {
		f.err = err
		return
	}
	defer s.Close()
	if !r.objects.has(h) {
		if f.err = r.fetch(w, s, h); f.err != nil {
			return
		}
	}
	f.commit, f.moved, f.err = r.advance(h)
}

// ask opens a conversation and returns the head; the caller closes it.
func (r *Repo) ask(w *watchdog) (session, plumbing.Hash, error) {
	r.mu.Lock()
	r.stats.LsRemotes++
	r.mu.Unlock()
	s, err := r.dial.dial(w)
	if err != nil {
		return nil, plumbing.ZeroHash, r.unavailable(w, "list branches", err)
	}
	h, err := s.head(w, r.cfg.Branch)
	if err != nil && !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		_ = s.Close()
		return nil, plumbing.ZeroHash, r.unavailable(w, "list branches", err)
	}
	r.mu.Lock()
	r.stats.LastContact = r.cfg.Now()
	r.mu.Unlock()
	if h.IsZero() {
		_ = s.Close()
		return nil, plumbing.ZeroHash, deploy.Errorf(deploy.Invalid, "remote %s has no branch %q: push it, or correct the branch in the configuration", r.Remote(), r.cfg.Branch)
	}
	return s, h, nil
}

func (r *Repo) fetch(w *watchdog, s session, h plumbing.Hash) error {
	start := r.cfg.Now()
	w.touch()
	if err := s.fetch(w, h, r.objects, w.touch); err != nil {
		return r.unavailable(w, "fetch branch "+r.cfg.Branch, err)
	}
	if err := checkCommit(r.objects, h); err != nil {
		return r.unavailable(w, "fetch branch "+r.cfg.Branch, fmt.Errorf("the remote sent an incomplete history: %w", err))
	}
	r.mu.Lock()
	r.stats.Fetches++
	r.mu.Unlock()
	r.cfg.Logger.Info("git repository fetched", "repository", r.cfg.ID, "branch", r.cfg.Branch, "commit", h.String(), "took", r.cfg.Now().Sub(start))
	return nil
}

// advance makes h, which the mirror holds, the head.
func (r *Repo) advance(h plumbing.Hash) (deploy.Commit, bool, error) {
	c, err := r.commit(h.String())
	if err != nil {
		return deploy.Commit{}, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head == h {
		return r.describe(c), false, nil
	}
	if err := r.objects.setRef(headRef(r.cfg.Branch), h); err != nil {
		return deploy.Commit{}, false, deploy.Errorf(deploy.Internal, "record head %s of %s: %w", h, r.Remote(), err)
	}
	r.head = h
	return r.describe(c), true, nil
}

// unavailable says in our words why the remote did not do what was asked: its
// own may be a page of HTML.
func (r *Repo) unavailable(w *watchdog, doing string, err error) error {
	switch {
	case context.Cause(w) == errSilent:
		err = fmt.Errorf("no answer within %s", r.cfg.Timeout)
	case w.Err() != nil:
		err = w.Err()
	case errors.Is(err, transport.ErrAuthenticationRequired):
		err = errors.New("authentication failed: check user name and password")
	case errors.Is(err, transport.ErrAuthorizationFailed):
		err = errors.New("access denied: check the permissions of the user")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		err = errors.New("repository not found: check the remote, and that the credentials may read it")
	}
	return deploy.Errorf(deploy.Unavailable, "%s of %s: %w", doing, r.Remote(), err)
}

// watchdog is a context that ends when nothing touched it for a while.
type watchdog struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

var errSilent = errors.New("the remote fell silent")

func watch(ctx context.Context, limit time.Duration) *watchdog {
	ctx, cancel := context.WithCancelCause(ctx)
	return &watchdog{
		Context: ctx, cancel: cancel, limit: limit,
		timer: time.AfterFunc(limit, func() { cancel(errSilent) }),
	}
}

func (w *watchdog) touch() { w.timer.Reset(w.limit) }

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// flights lets concurrent callers share work: one flight runs, one forms.
type flights struct {
	runway chan struct{} // holds one token while a flight runs

	mu      *sync.Mutex
	forming *flight
}

// flight is one run and its result, which is read after done is closed.
type flight struct {
	done   chan struct{}
	commit deploy.Commit
	moved  bool
	err    error
}

func newFlights() flights {
	return flights{runway: make(chan struct{}, 1), mu: new(sync.Mutex)}
}

// join returns a finished flight that began after the call, running it itself
// if nobody else does. It fails only when ctx ends; a flight whose runner gave
// up so is run by another of its callers.
func (fs *flights) join(ctx context.Context, run func(context.Context, *flight)) (*flight, error) {
	fs.mu.Lock()
	if fs.forming == nil {
		fs.forming = &flight{done: make(chan struct{})}
	}
	f := fs.forming
	fs.mu.Unlock()

	select {
	case <-f.done:
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case fs.runway <- struct{}{}:
	}
	defer func() { <-fs.runway }()
	select {
	case <-f.done:
		return f, nil
	default:
	}
	fs.mu.Lock()
	if fs.forming == f {
		fs.forming = nil // later callers want a later answer
	}
	fs.mu.Unlock()
	f.err = nil // of a runner that gave up
	run(ctx, f)
	if f.err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	close(f.done)
	return f, nil
}
