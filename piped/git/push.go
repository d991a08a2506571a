package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/deploy"
)

// Change describes a commit to build and push.
type Change struct {
	Parent  string            // the hash of a commit of the mirror
	Files   map[string][]byte // new contents of files of Parent, by path; their modes stay
	Message string
	Author  string
	Email   string
	At      time.Time
}

// pushSession is a connection over which a branch can be changed.
type pushSession interface {
	// head returns the commit of a branch, the zero hash when there is none.
	head(ctx context.Context, ref plumbing.ReferenceName) (plumbing.Hash, error)
	// push moves a branch from one commit to another; from is the zero hash for a new branch.
	// pack contains the new objects. The error is a *refusal if the remote rejects the push.
	push(w *watchdog, branch string, from, to plumbing.Hash, pack []byte) error
	io.Closer
}

// refusal is the error of a remote that rejects a push.
type refusal struct {
	reason string // one line of the remote
	said   string // further output of the remote
}

func (r *refusal) Error() string {
	if said := remoteMessage(r.said); said != "" && !strings.Contains(r.reason, said) {
		return r.reason + ": " + said
	}
	return r.reason
}

// remoteMessage returns the output of a remote for users as one line of limited length.
func remoteMessage(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "remote:"))
		if strings.Trim(line, "=- ") != "" {
			lines = append(lines, line)
		}
	}
	return strings.ToValidUTF8(short(strings.Join(lines, " ")), "")
}

func short(text string) string { return text[:min(len(text), 300)] }

// conflictReasons lists substrings of the reasons with which remotes reject a push after a
// concurrent one.
var conflictReasons = []string{
	"non-fast-forward", "fetch first", "stale info", "cannot lock ref", "failed to update ref", "failed to lock", "reference already exists", "incorrect old value",
}

// Push builds the commit c and pushes it to a branch of the remote: to the tracked branch if
// its head is c.Parent, or to a new branch. It never forces. The mirror does not change: the
// next Sync fetches the commit.
//
// The error is of kind Conflict if the tracked branch is at another commit; the caller must
// build the change on that commit. It is of kind Exists if another branch exists already;
// commit is then the head of that branch. It is NotFound if the mirror lacks the parent or the
// parent lacks a file, Invalid, with the reason, if the remote rejects the change or the
// credentials, and Unavailable otherwise. An error of Config.Permit has the kind of that error.
func (r *Repo) Push(ctx context.Context, branch string, c Change) (commit string, err error) {
	if headRef(branch).Validate() != nil {
		return "", deploy.Errorf(deploy.Invalid, "push to %s: %q is not a branch name", r.Remote(), branch)
	}
	made, err := r.makeCommit(c)
	if err != nil {
		return "", err
	}
	t := r.follows()
	w := watch(ctx, r.cfg.Timeout)
	defer w.stop()
	measured := measure(r.cfg.Metrics, Push)
	defer func() { measured(w, err) }()
	s, err := t.dial.dialPush(w)
	if err != nil {
		return "", r.notPushed(w, branch, err)
	}
	defer s.Close()
	at, err := s.head(w, plumbing.NewBranchReferenceName(branch))
	if err != nil && !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return "", r.notPushed(w, branch, err)
	}
	from := plumbing.ZeroHash
	switch {
	case branch == t.branch && at.String() != c.Parent:
		return "", deploy.Errorf(deploy.Conflict, "push to branch %s of %s: it is at commit %s, not at %s", branch, r.Remote(), deploy.ShortHash(at.String()), deploy.ShortHash(c.Parent))
	case branch == t.branch:
		from = at
	case !at.IsZero():
		return at.String(), deploy.Errorf(deploy.Exists, "push to branch %s of %s: it exists already", branch, r.Remote())
	}
	if r.cfg.Permit != nil {
		if err := r.cfg.Permit(ctx); err != nil {
			return "", deploy.Errorf(deploy.KindOf(err), "push to branch %s of %s: %w", branch, r.Remote(), err)
		}
	}
	w.touch()
	if err := s.push(w, branch, from, made.commit, made.pack); err != nil {
		return "", r.notPushed(w, branch, err)
	}
	r.cfg.Logger.Info("git commit pushed", "repo", r.cfg.ID, "branch", branch, "commit", made.commit.String())
	return made.commit.String(), nil
}

// notPushed returns the error of a push with its kind.
func (r *Repo) notPushed(w *watchdog, branch string, err error) error {
	doing := "push to branch " + branch
	var no *refusal
	var words serverError
	switch {
	case errors.As(err, &no) && slices.ContainsFunc(conflictReasons, func(part string) bool { return strings.Contains(no.reason, part) }):
		return deploy.Errorf(deploy.Conflict, "%s of %s: another push came first: %w", doing, r.Remote(), no)
	case errors.As(err, &no):
		return deploy.Errorf(deploy.Invalid, "%s of %s: the remote refuses it: %w; permit the agent's user to push there", doing, r.Remote(), no)
	case errors.As(err, &words):
		return deploy.Errorf(deploy.Invalid, "%s of %s: %w; permit the agent's user to push there", doing, r.Remote(), words)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed), errors.Is(err, transport.ErrRepositoryNotFound):
		return deploy.Errorf(deploy.Invalid, "%s of %s: the credentials do not permit it: give the agent ones (spec.git) that may write", doing, r.Remote())
	}
	return r.unavailable(w, doing, err)
}

// readBranch returns the commit of a branch among advertised references.

// madeCommit is a new commit and the pack of all objects that it adds.
type madeCommit struct {
	commit plumbing.Hash
	pack   []byte
}

// makeCommit builds the commit c without storing it in the mirror.
func (r *Repo) makeCommit(c Change) (madeCommit, error) {
	parent, err := r.commit(c.Parent)
	if err != nil {
		return madeCommit{}, err
	}
	b := newBuilder(r.objects)
	commit, err := b.commit(parent, c)
	if err != nil {
		return madeCommit{}, deploy.Errorf(deploy.KindOf(err), "build a commit on %s of %s: %w", deploy.ShortHash(c.Parent), r.Remote(), err)
	}
	var pack bytes.Buffer
	if err := b.encode(&pack); err != nil {
		return madeCommit{}, deploy.Errorf(deploy.Internal, "build a commit on %s of %s: %w", deploy.ShortHash(c.Parent), r.Remote(), fmt.Errorf("write its pack: %w", err))
	}
	return madeCommit{commit, pack.Bytes()}, nil
}
