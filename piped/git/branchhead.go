package git

import (
	"context"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// Protocol returns how a remote is reached: file, http, https or ssh.
func Protocol(remote string) (string, error) {
	a, err := parseAddress(remote)
	if err != nil {
		return "", err
	}
	return a.endpoint.Protocol, nil
}

// BranchHead returns the commit of a branch of a remote, without fetching it. The error is of kind
// Invalid if the remote is not an address or has no such branch, else Unavailable.
func BranchHead(ctx context.Context, remote, branch string, auth Auth) (_ string, err error) {
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
		return "", unavailable(w, defaultTimeout, "read branch "+branch, a.text, err)
	}
	defer s.Close() //nolint:errcheck // the result is complete
	head, err := s.head(w, plumbing.NewBranchReferenceName(branch))
	if err != nil {
		return "", unavailable(w, defaultTimeout, "read branch "+branch, a.text, err)
	}
	if head.IsZero() {
		return "", deploy.Errorf(deploy.Invalid, "%s has no branch %s", a.text, branch)
	}
	return head.String(), nil
}
