package git

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// Sync reads the head of the tracked branch from the remote, fetches it with its history if
// the mirror lacks it, and makes it Head. It returns the commit and whether it differs from
// the previous Head, which may be from before a restart. A force-pushed branch is followed.
// Errors are as those of RemoteHead and do not change the mirror or Head; the cause is
// ErrRefused if the head exceeds the bounds.
//
// One Sync runs at a time. Concurrent callers share the next one, so that each result is at
// least as new as the call.
func (r *Repo) Sync(ctx context.Context) (c deploy.Commit, moved bool, err error) {
	f, err := r.flights.join(ctx, r.sync)
	if err != nil {
		return deploy.Commit{}, false, deploy.Errorf(deploy.Unavailable, "sync %s: %w", r.Remote(), err)
	}
	return f.commit, f.moved, f.err
}

// maxSync bounds the duration of a Sync.
const maxSync = time.Hour

// sync runs one Sync and stores its result in f.
func (r *Repo) sync(ctx context.Context, f *flight) {
	defer func() { r.note(ctx, f.err) }()
	bounded, cancel := context.WithTimeout(ctx, maxSync)
	defer cancel()
	w := watch(bounded, r.cfg.Timeout)
	defer w.stop()
	s, h, err := r.ask(w)
	if err != nil {
		f.err = err
		return
	}
	defer s.Close()
	if f.err = r.obtain(w, s, h); f.err == nil {
		f.commit, f.moved, f.err = r.advance(h)
	}
}

// obtain ensures that the mirror has the commit h and that h is within the bounds. It does not
// fetch a refused commit again.
func (r *Repo) obtain(w *watchdog, s session, h plumbing.Hash) (err error) {
	r.mu.Lock()
	head, refused := r.head, r.refused
	r.mu.Unlock()
	switch {
	case head == h:
		return nil
	case refused.hash == h:
		return refused.err
	case r.objects.has(h):
		w.rest() // expect no more data from the remote
		err = r.objects.checkCommitTree(w, h)
	default:
		err = r.fetch(w, s, h)
	}
	if errors.Is(err, ErrBeyond) {
		err = r.refuseHead(h, err)
		r.mu.Lock()
		r.refused = refusedHead{h, err}
		r.mu.Unlock()
	}
	return err
}

// refusedHead is a refused head and the reason.
type refusedHead struct {
	hash plumbing.Hash
	err  error
}

// fetch receives a commit with all objects that it refers to into a separate database. The
// mirror adopts that after the checks.
func (r *Repo) fetch(w *watchdog, s session, h plumbing.Hash) (err error) {
	start, measured := r.cfg.Now(), measure(r.cfg.Metrics, Fetch)
	defer func() { measured(w, err) }()
	received, err := r.separate()
	if err != nil {
		return deploy.Errorf(deploy.Internal, "fetch branch %s of %s: create a database for it: %w", r.follows().branch, r.Remote(), err)
	}
	defer func() { err = errors.Join(err, received.discard()) }()
	if err := r.receive(w, s, h, received); err != nil {
		return err
	}
	if err := r.objects.adopt(received); err != nil {
		return deploy.Errorf(deploy.Internal, "fetch branch %s of %s: %w", r.follows().branch, r.Remote(), err)
	}
	r.mu.Lock()
	r.stats.Fetches++
	r.state.FetchedAt = r.cfg.Now()
	r.mu.Unlock()
	r.cfg.Logger.Info("git repository fetched", "repo", r.cfg.ID, "branch", r.follows().branch, "commit", h.String(), "took", r.cfg.Now().Sub(start))
	return nil
}

// receive fetches a commit into a database and checks it. The cause of the error is ErrBeyond
// if the commit exceeds the bounds.
func (r *Repo) receive(w *watchdog, s session, h plumbing.Hash, into *objects) error {
	doing := "fetch branch " + r.follows().branch
	w.touch()
	if err := s.fetch(w, h, into); err != nil {
		return r.unavailable(w, doing, err)
	}
	w.rest() // checking is our own work
	if err := checkCommit(into, h); err != nil {
		return r.unavailable(w, doing, fmt.Errorf("the remote sent an incomplete history: %w", err))
	}
	if err := into.checkCommitTree(w, h); err != nil {
		return r.unavailable(w, doing, err)
	}
	return nil
}

// advance makes h, a commit of the mirror, the head.
func (r *Repo) advance(h plumbing.Hash) (deploy.Commit, bool, error) {
	c, err := r.commit(h.String())
	if err != nil {
		return deploy.Commit{}, false, err
	}
	t, head := r.follows(), r.describe(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head == h {
		return head, false, nil
	}
	if err := r.objects.setRef(headRef(t.branch), h); err != nil {
		return deploy.Commit{}, false, deploy.Errorf(deploy.Internal, "record head %s of %s: %w", h, t.address.text, err)
	}
	r.head = h
	return head, true, nil
}
