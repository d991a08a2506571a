package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

func (d *localDialer) dialPush(ctx context.Context) (pushSession, error) {
	s, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	return s.(*localSession), nil
}

// push stores the pack and moves the branch, unless that has moved in the meantime. Like git,
// it does not move a branch that is checked out in a worktree.
func (s *localSession) push(w *watchdog, branch string, from, to plumbing.Hash, pack []byte) error {
	w.rest() // storing is our own work
	name := plumbing.NewBranchReferenceName(branch)
	if err := s.refuseCheckedOut(name); err != nil {
		return err
	}
	out, err := s.sto.PackfileWriter()
	if err != nil {
		return err
	}
	_, err = io.Copy(out, bytes.NewReader(pack))
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return s.move(name, from, to)
}

// move sets a reference from one commit to another; from is the zero hash for a new reference.
// Like git it takes the reference's lock and replaces the file atomically.
func (s *localSession) move(name plumbing.ReferenceName, from, to plumbing.Hash) error {
	file := filepath.Join(s.dir, filepath.FromSlash(name.String()))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	lock := file + ".lock"
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &refusal{reason: "cannot lock ref: " + lock + " exists; remove it if no other push is under way"}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(to.String() + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.expect(name, from)
	}
	if err == nil {
		err = os.Rename(lock, file)
	}
	if err != nil {
		_ = os.Remove(lock)
	}
	return err
}

// expect returns a refusal unless the reference is at the given commit; the zero hash means
// that it must not exist.
func (s *localSession) expect(name plumbing.ReferenceName, at plumbing.Hash) error {
	ref, err := s.sto.Reference(name)
	switch {
	case errors.Is(err, plumbing.ErrReferenceNotFound):
		if at.IsZero() {
			return nil
		}
	case err != nil:
		return err
	case ref.Hash() == at:
		return nil
	}
	return &refusal{reason: "fetch first"}
}

// refuseCheckedOut returns a refusal if the branch is checked out in a worktree.
func (s *localSession) refuseCheckedOut(name plumbing.ReferenceName) error {
	cfg, err := s.sto.Config()
	if err != nil {
		return err
	}
	head, err := storer.ResolveReference(s.sto, plumbing.HEAD)
	if err == nil && !cfg.Core.IsBare && head.Name() == name {
		return &refusal{reason: "branch is currently checked out there; use a bare repository as remote"}
	}
	return nil
}
