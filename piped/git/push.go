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

// Change is a commit that is to be made and pushed.
type Change struct {
	Parent  string            // the hash of a commit of the mirror
	Files   map[string][]byte // by path what files of Parent hold from then on; their modes stay
	Message string
	Author  string
	Email   string
	At      time.Time
}

// pushSession is one conversation that changes a branch.
type pushSession interface {
	// head returns the commit of a branch, the zero hash when there is none.
	head(ctx context.Context, branch string) (plumbing.Hash, error)
	// push moves a branch from one commit, the zero hash of a new branch, to another,
	// whose objects pack holds. What the remote refuses is a refusal.
	push(w *watchdog, branch string, from, to plumbing.Hash, pack []byte) error
	io.Closer
}

// refusal is why a remote did not move a branch.
type refusal struct {
	reason string // the remote's, of one line
	said   string // what it wrote beside it
}

func (r *refusal) Error() string {
	if said := said(r.said); said != "" && !strings.Contains(r.reason, said) {
		return r.reason + ": " + said
	}
	return r.reason
}

// said returns what a remote wrote for people, as one line of bearable length.
func said(text string) string {
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

// overtaken are parts of the reasons for which remotes refuse a push that somebody
// else's came before.
var overtaken = []string{
	"non-fast-forward", "fetch first", "stale info", "cannot lock ref", "failed to update ref", "failed to lock", "reference already exists", "incorrect old value",
}

// Push makes a commit of c and pushes it to a branch of the remote: to the tracked
// branch, if that is at c.Parent there, or to a new one. It never forces. The
// mirror is not changed: the next Sync brings it the commit.
//
// The kind is Conflict when the tracked branch is at another commit, so that the
// change has to be made anew on that one; Exists, with the commit it is at, when
// another branch exists already; NotFound when the mirror has no such parent or
// that no such file; Invalid when the remote refuses the change or the
// credentials, with its reason; else Unavailable.
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
	at, err := s.head(w, branch)
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
	w.touch()
	if err := s.push(w, branch, from, made.commit, made.pack); err != nil {
		return "", r.notPushed(w, branch, err)
	}
	r.cfg.Logger.Info("git commit pushed", "repo", r.cfg.ID, "branch", branch, "commit", made.commit.String())
	return made.commit.String(), nil
}

// notPushed gives what kept a push from being done its kind.
func (r *Repo) notPushed(w *watchdog, branch string, err error) error {
	doing := "push to branch " + branch
	var no *refusal
	var words spoken
	switch {
	case errors.As(err, &no) && slices.ContainsFunc(overtaken, func(part string) bool { return strings.Contains(no.reason, part) }):
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
func readBranch(refs map[string]plumbing.Hash, branch string) plumbing.Hash {
	return refs[plumbing.NewBranchReferenceName(branch).String()]
}

// madeCommit is a commit and the pack of all objects that it adds.
type madeCommit struct {
	commit plumbing.Hash
	pack   []byte
}

func (r *Repo) makeCommit(c Change) (madeCommit, error) {
	parent, err := r.commit(c.Parent)
	if err != nil {
		return madeCommit{}, err
	}
	b := newBuilder(r.objects)
	commit, err := b.commit(parent, c)
	if err != nil {
		return madeCommit{}, deploy.Errorf(deploy.KindOf(err), "make a commit on %s of %s: %w", deploy.ShortHash(c.Parent), r.Remote(), err)
	}
	var pack bytes.Buffer
	if err := b.encode(&pack); err != nil {
		return madeCommit{}, deploy.Errorf(deploy.Internal, "make a commit on %s of %s: %w", deploy.ShortHash(c.Parent), r.Remote(), fmt.Errorf("write its pack: %w", err))
	}
	return madeCommit{commit, pack.Bytes()}, nil
}
