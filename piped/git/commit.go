package git

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

// Head returns the commit of the last successful Sync, also from before a restart,
// without a request to the remote; ok is false if there was none.
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

// MinAbbreviation is the minimal length of an abbreviated commit hash.
const MinAbbreviation = 7

// Commit returns a commit of the mirror by its hash or an abbreviation of at least
// MinAbbreviation digits. The error is of kind NotFound if the mirror has no such
// commit: it was never on the tracked branch. It is Invalid if the abbreviation is
// ambiguous.
func (r *Repo) Commit(ctx context.Context, hash string) (deploy.Commit, error) {
	full, err := r.complete(ctx, hash)
	if err != nil {
		return deploy.Commit{}, err
	}
	c, err := r.commit(full)
	if err != nil {
		return deploy.Commit{}, err
	}
	return r.describe(c), nil
}

// complete returns the full hash for an abbreviated one. Any other text is returned unchanged.
func (r *Repo) complete(ctx context.Context, prefix string) (string, error) {
	if !isAbbreviation(prefix) {
		return prefix, nil
	}
	commits, err := r.objects.commitsWith(ctx, strings.ToLower(prefix))
	switch {
	case err != nil:
		return "", deploy.Errorf(deploy.Internal, "look up commit %s of %s: %w", prefix, r.Remote(), err)
	case len(commits) == 0:
		return "", deploy.Errorf(deploy.NotFound, "no commit in the mirror of %s begins with %s: none was ever on branch %s", r.Remote(), prefix, r.follows().branch)
	case len(commits) > 1:
		return "", deploy.Errorf(deploy.Invalid, "%d commits of %s begin with %s, such as %s and %s: give more digits", len(commits), r.Remote(), prefix, commits[0], commits[1])
	}
	return commits[0], nil
}

func isAbbreviation(hash string) bool {
	const full = 40
	return len(hash) >= MinAbbreviation && len(hash) < full && strings.Trim(strings.ToLower(hash), "0123456789abcdef") == ""
}

// Pin keeps a commit of the mirror reachable under a name that the caller chooses, even after
// a force-push to the branch. It replaces an earlier pin of that name.
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

// Unpin removes a pin. It is idempotent.
func (r *Repo) Unpin(name string) error {
	ref := plumbing.ReferenceName(pinRefs + name)
	if ref.Validate() != nil {
		return nil // Pin rejects such names
	}
	if err := r.objects.removeRef(ref); err != nil {
		return deploy.Errorf(deploy.Internal, "remove pin %q of %s: %w", name, r.Remote(), err)
	}
	return nil
}

// commit reads a commit object. The error is of kind NotFound if the mirror lacks it.
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

// describe converts a commit object.
func (r *Repo) describe(c *object.Commit) deploy.Commit {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	hash, t := c.Hash.String(), r.follows()
	return deploy.Commit{
		Hash: hash, Message: strings.TrimSpace(subject), Author: c.Author.Name, AuthorEmail: c.Author.Email,
		Committer: c.Committer.Name, CommitterEmail: c.Committer.Email,
		Branch: t.branch, URL: t.address.commitURL(hash), At: c.Committer.When.UTC(), Trace: trailer(c.Message, deploy.TraceTrailer),
	}
}
