package git

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/c785c783/piped/piped/deploy"
)

// DefaultBranch returns the branch that the HEAD of a remote refers to. The error is of kind
// Invalid if the remote is not an address or its HEAD refers to no branch, else Unavailable.
func DefaultBranch(ctx context.Context, remote string, auth Auth) (_ string, err error) {
	a, err := parseAddress(remote)
	if err != nil {
		return "", &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	dial, err := newDialer(a, auth)
	if err != nil {
		return "", &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	defer dial.close() //nolint:errcheck // nothing was written
	w := watch(ctx, defaultTimeout)
	defer w.stop()
	s, err := dial.dial(w)
	if err != nil {
		return "", unavailable(w, defaultTimeout, "read the HEAD", a.text, err)
	}
	defer s.Close() //nolint:errcheck // the result is complete
	head, err := s.symbolicHead(w)
	if err != nil {
		return "", unavailable(w, defaultTimeout, "read the HEAD", a.text, err)
	}
	if !head.IsBranch() {
		return "", deploy.Errorf(deploy.Invalid, "the HEAD of %s refers to no branch: name the branch to watch", a.text)
	}
	return head.Short(), nil
}

// symbolicHead implements session.
func (s *localSession) symbolicHead(context.Context) (plumbing.ReferenceName, error) {
	head, err := s.sto.Reference(plumbing.HEAD)
	if err != nil {
		return "", err
	}
	return head.Target(), nil
}

// symbolicHead implements session. Servers before Git 1.8.5 do not say which branch it is.
func (c *connection[T]) symbolicHead(ctx context.Context) (plumbing.ReferenceName, error) {
	refs, err := c.server.AdvertisedReferencesContext(ctx)
	if err != nil {
		return "", err
	}
	for _, symbolic := range refs.Capabilities.Get(capability.SymRef) {
		if name, target, _ := strings.Cut(symbolic, ":"); name == string(plumbing.HEAD) {
			return plumbing.ReferenceName(target), nil
		}
	}
	return "", nil
}
