package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/deploy"
)

// dialer opens connections to one remote.
type dialer interface {
	// dial opens a connection, which ends with ctx.
	dial(ctx context.Context) (session, error)
	// dialPush opens a connection for a push.
	dialPush(ctx context.Context) (pushSession, error)
	close() error
}

// session is a connection for one head and, if that is new, one fetch.
type session interface {
	// head returns the commit of a branch, the zero hash when there is none.
	head(ctx context.Context, ref plumbing.ReferenceName) (plumbing.Hash, error)
	// symbolicHead returns what HEAD refers to, "" if that is not known. It is called in place of
	// head.
	symbolicHead(ctx context.Context) (plumbing.ReferenceName, error)
	// fetch adds the commit want with all objects that it refers to. It calls w.touch
	// when data was received, and w.rest while no data is expected.
	fetch(w *watchdog, want plumbing.Hash, into *objects) error
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

// RemoteHead reads the head of the tracked branch from the remote without fetching it.
// The error is of kind Invalid if the branch does not exist, else Unavailable; for an
// unknown SSH host it contains the line to add to known_hosts.
func (r *Repo) RemoteHead(ctx context.Context) (string, error) {
	w := watch(ctx, r.cfg.Timeout)
	defer w.stop()
	s, h, err := r.ask(w)
	if err != nil {
		return "", err
	}
	_ = s.Close() // the result is complete
	return h.String(), nil
}

// ask opens a connection and returns the head of the tracked branch. The caller closes the
// connection.
func (r *Repo) ask(w *watchdog) (_ session, _ plumbing.Hash, err error) {
	measured := measure(r.cfg.Metrics, ListRefs)
	defer func() { measured(w, err) }()
	r.mu.Lock()
	r.stats.LsRemotes++
	r.mu.Unlock()
	t := r.follows()
	s, err := t.dial.dial(w)
	if err != nil {
		return nil, plumbing.ZeroHash, r.unavailable(w, "list branches", err)
	}
	h, err := s.head(w, plumbing.NewBranchReferenceName(t.branch))
	if err != nil && !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		_ = s.Close()
		return nil, plumbing.ZeroHash, r.unavailable(w, "list branches", err)
	}
	r.mu.Lock()
	r.stats.LastContact = r.cfg.Now()
	r.mu.Unlock()
	if h.IsZero() {
		_ = s.Close()
		return nil, plumbing.ZeroHash, deploy.Errorf(deploy.Invalid, "remote %s has no branch %q: push it, or correct the branch in the configuration", r.Remote(), t.branch)
	}
	return s, h, nil
}

func (r *Repo) unavailable(w *watchdog, doing string, err error) error {
	return unavailable(w, r.cfg.Timeout, doing, r.Remote(), err)
}

// unavailable returns an error of kind Unavailable with a reason for users. It replaces known
// causes, since the response itself may be an HTML page.
func unavailable(w *watchdog, timeout time.Duration, doing, remote string, err error) error {
	switch {
	case context.Cause(w) == errSilent:
		err = fmt.Errorf("no answer within %s", timeout)
	case w.Err() != nil:
		err = w.Err()
	case errors.Is(err, transport.ErrAuthenticationRequired):
		err = deniedError("authentication failed: check user name and password")
	case errors.Is(err, transport.ErrAuthorizationFailed):
		err = deniedError("access denied: check the permissions of the user")
	case errors.Is(err, transport.ErrRepositoryNotFound):
		err = deniedError("repository not found: check the remote, and that the credentials may read it")
	}
	return deploy.Errorf(deploy.Unavailable, "%s of %s: %w", doing, remote, err)
}

// deniedError says that a remote asks for other credentials.
type deniedError string

func (e deniedError) Error() string { return string(e) }

// IsDenied reports whether a remote asked for other credentials than it was given.
func IsDenied(err error) bool {
	var denied deniedError
	return errors.As(err, &denied)
}

// watchdog is a context that is cancelled if touch is not called within limit.
type watchdog struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

var errSilent = errors.New("the remote fell silent")

// watch returns a watchdog with a running timeout. The caller stops it.
func watch(ctx context.Context, limit time.Duration) *watchdog {
	ctx, cancel := context.WithCancelCause(ctx)
	return &watchdog{
		Context: ctx, cancel: cancel, limit: limit,
		timer: time.AfterFunc(limit, func() { cancel(errSilent) }),
	}
}

// abandoned reports whether the context ended for a reason other than the timeout.
func (w *watchdog) abandoned() bool { return w.Err() != nil && context.Cause(w) != errSilent }

// touch restarts the timeout.
func (w *watchdog) touch() { w.timer.Reset(w.limit) }

// rest stops the timeout until the next touch.
func (w *watchdog) rest() { w.timer.Stop() }

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
