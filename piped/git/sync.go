package git

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// Sync asks the remote for the head of the tracked branch, fetches it with its
// history if the mirror lacks it, and makes it Head. It returns the commit and
// whether it is another than the last Sync's, before a restart too. Rewritten
// branches are followed. Errors are as RemoteHead's and leave the mirror and
// Head as they were; the cause is ErrRefused when the head is beyond the bounds of
// what the agent reads.
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

// maxSync bounds how long one Sync takes, whatever the remote sends.
const maxSync = time.Hour

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

// obtain makes sure that the mirror holds a commit that can be the head. One that was
// refused is not asked for again.
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
		w.rest() // the remote is not waited for
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

// refusedHead is a head that was refused, and why.
type refusedHead struct {
	hash plumbing.Hash
	err  error
}

// fetch receives a commit and what it refers to into a database of its own, from which
// the mirror takes it once it was checked.
func (r *Repo) fetch(w *watchdog, s session, h plumbing.Hash) (err error) {
	start, measured := r.cfg.Now(), measure(r.cfg.Metrics, Fetch)
	defer func() { measured(w, err) }()
	received, err := r.beside()
	if err != nil {
		return deploy.Errorf(deploy.Internal, "fetch branch %s of %s: make room for it: %w", r.follows().branch, r.Remote(), err)
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

// receive fetches a commit into a database and checks it. The cause of the error is
// ErrBeyond when the commit is beyond the bounds.
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

// advance makes h, which the mirror holds, the head.
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
