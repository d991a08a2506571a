package gittest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// CommitOn commits to another branch what change stages, and returns the commit's hash. A
// missing branch starts at the head of Branch. Branch and its staged files do not change.
func (r *Repo) CommitOn(branch, message string, change func(*Repo) error) (string, error) {
	own, head, staged := plumbing.NewBranchReferenceName(branch), r.head, maps.Clone(r.staged)
	defer func() { r.head, r.staged = head, staged }()
	if ref, err := r.sto.Reference(own); err == nil {
		if err := r.stage(ref.Hash()); err != nil {
			return "", fmt.Errorf("go on with branch %s: %w", branch, err)
		}
	}
	if err := change(r); err != nil {
		return "", err
	}
	c, err := r.record(message)
	if err != nil {
		return "", fmt.Errorf("commit %q on %s: %w", message, branch, err)
	}
	return c.String(), r.setRef(own, c)
}

// PushOn commits files on another branch, as Push does on Branch.
func (r *Repo) PushOn(t testing.TB, branch, message string, files map[string]string) string {
	t.Helper()
	hash, err := r.CommitOn(branch, message, func(r *Repo) error { return r.Write(files) })
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// setRef moves a reference atomically. go-git truncates and rewrites the file, so that a
// concurrent reader could find it empty.
func (r *Repo) setRef(name plumbing.ReferenceName, h plumbing.Hash) error {
	file := filepath.Join(r.Dir, filepath.FromSlash(name.String()))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".lock", []byte(h.String()+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".lock", file)
}
