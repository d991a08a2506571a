package git

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// Follow changes the remote, the branch or the credentials of the Repo. The mirror keeps its
// objects, so that readers are not affected and commits of the former remote can still be
// read. Follow waits for a running Sync. After an error nothing has changed.
func (r *Repo) Follow(ctx context.Context, remote, branch string, auth Auth) error {
	c := r.cfg
	c.Remote, c.Branch, c.Auth = remote, branch, auth
	next, err := c.target()
	if err != nil {
		return err
	}
	last, err := r.redirect(ctx, next)
	if err != nil {
		_ = next.dial.close() // never used
		return deploy.Errorf(deploy.Internal, "follow %s in the mirror of %q: %w", next.address.text, r.cfg.ID, err)
	}
	if err := last.dial.close(); err != nil {
		r.cfg.Logger.Warn("connections to a remote that is no longer followed are left open", "repo", r.cfg.ID, "error", err)
	}
	return nil
}

// redirect replaces the target while no Sync runs, and returns the former one.
func (r *Repo) redirect(ctx context.Context, next target) (last target, err error) {
	select {
	case r.flights.runway <- struct{}{}:
	case <-ctx.Done():
		return last, ctx.Err()
	}
	defer func() { <-r.flights.runway }()
	last = r.follows()
	if last.address.text != next.address.text {
		if err := r.objects.setOrigin(next.address.text); err != nil {
			return last, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last.address.text != next.address.text || last.branch != next.branch {
		r.head, _ = r.objects.ref(headRef(next.branch)) // zero if there is none
		r.refused = refusedHead{}
	}
	r.target = next
	return last, nil
}

// setOrigin sets the remote of the mirror and forgets the known heads.
func (o *objects) setOrigin(remote string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	refs, err := o.sto.IterReferences()
	if err != nil {
		return fmt.Errorf("read the heads: %w", err)
	}
	err = refs.ForEach(func(ref *plumbing.Reference) error {
		if !strings.HasPrefix(ref.Name().String(), headRefs) {
			return nil
		}
		return o.sto.RemoveReference(ref.Name())
	})
	if err != nil {
		return fmt.Errorf("forget the heads: %w", err)
	}
	return writeOrigin(o.sto, remote)
}
