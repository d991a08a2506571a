package git

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

// Head returns the commit the last successful Sync saw, also one of before a
// restart. It does not ask the remote; ok is false when there was none.
func (r *Repo) Head() (c deploy.Commit, ok bool) {
	r.mu.Lock()
	h := r.head
	r.mu.Unlock()
	if h.IsZero() {
		return deploy.Commit{}, false
	}
	oc, err := r.objects.commit(h)
	if err != nil {
		return deploy.Commit{}, false
	}
	return r.describe(oc), true
}

// Commit returns a commit of the mirror. The kind is NotFound when the mirror
// does not hold it: it was never on the tracked branch, or the hash is not a
// full one.
func (r *Repo) Commit(_ context.Context, hash string) (deploy.Commit, error) {
	c, err := r.commit(hash)
	if err != nil {
		return deploy.Commit{}, err
	}
	return r.describe(c), nil
}

// Pin keeps a commit of the mirror reachable under a name of the caller's,
// whatever happens to the branch. A name already used is moved.
func (r *Repo) Pin(name, hash string) error {
	ref := plumbing.ReferenceName(pinRefs + name)
	if err := ref.Validate(); err != nil {
		return deploy.Errorf(deploy.Invalid, "pin commit %s of %s: %q is not a name a reference can have", hash, r.Remote(), name)
	}
	c, err := r.commit(hash)
	if err != nil {
		return err
	}
	if err := r.objects.setRef(ref, c.Hash); err != nil {
		return deploy.Errorf(deploy.Internal, "pin commit %s of %s as %q: %w", hash, r.Remote(), name, err)
	}
	return nil
}

// Unpin removes a pin; one that does not exist is no error.
func (r *Repo) Unpin(name string) error {
	ref := plumbing.ReferenceName(pinRefs + name)
	if ref.Validate() != nil {
		return nil // Pin refuses such names
	}
	if err := r.objects.removeRef(ref); err != nil {
		return deploy.Errorf(deploy.Internal, "remove pin %q of %s: %w", name, r.Remote(), err)
	}
	return nil
}

// commit reads a commit object; the kind is NotFound when there is none.
func (r *Repo) commit(hash string) (*object.Commit, error) {
	if !plumbing.IsHash(hash) {
		return nil, deploy.Errorf(deploy.NotFound, "commit %q of %s: not a full commit hash", hash, r.Remote())
	}
	c, err := r.objects.commit(plumbing.NewHash(hash))
	switch err {
	case nil:
		return c, nil
	case plumbing.ErrObjectNotFound:
		return nil, deploy.Errorf(deploy.NotFound, "commit %s is not in the mirror of %s: it was never on branch %s, or the branch was rewritten", hash, r.Remote(), r.follows().branch)
	default:
		return nil, deploy.Errorf(deploy.Internal, "read commit %s of %s: %w", hash, r.Remote(), err)
	}
}

func (r *Repo) describe(c *object.Commit) deploy.Commit {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	hash, t := c.Hash.String(), r.follows()
	return deploy.Commit{
		Hash: hash, Message: strings.TrimSpace(subject), Author: c.Author.Name,
		Branch: t.branch, URL: t.address.commitURL(hash), At: c.Committer.When.UTC(),
	}
}
