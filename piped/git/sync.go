package git

import (
	"context"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

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
	defer func() { r.note(ctx, f.err) }()
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

func (r *Repo) fetch(w *watchdog, s session, h plumbing.Hash) (err error) {
	start, asked := r.cfg.Now(), observed(r.cfg.Observer, Fetch)
	defer func() { asked(w, err) }()
	w.touch()
	if err := s.fetch(w, h, r.objects); err != nil {
		return r.unavailable(w, "fetch branch "+r.follows().branch, err)
	}
	if err := checkCommit(r.objects, h); err != nil {
		return r.unavailable(w, "fetch branch "+r.follows().branch, fmt.Errorf("the remote sent an incomplete history: %w", err))
	}
	r.mu.Lock()
	r.stats.Fetches++
	r.state.FetchedAt = r.cfg.Now()
	r.mu.Unlock()
	r.cfg.Logger.Info("git repository fetched", "repo", r.cfg.ID, "branch", r.follows().branch, "commit", h.String(), "took", r.cfg.Now().Sub(start))
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
