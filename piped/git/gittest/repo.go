package gittest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Branch is the branch every Repo commits to.
const Branch = "main"

const branchRef = plumbing.ReferenceName("refs/heads/" + Branch)

// Repo is a bare repository that is written without a worktree: Write and similar methods
// stage changes, Commit commits them. It is not safe for concurrent use, but concurrent
// readers of the directory always find a consistent repository.
type Repo struct {
	Dir string
	// Now returns the times of commits; NewRepo sets it to time.Now.
	Now func() time.Time
	// Author and Email are those of new commits; NewRepo sets them to Test Author and
	// author@example.com.
	Author, Email string
	// Sign, if set, signs each new commit: it returns the armored signature of a commit
	// object.
	Sign func(object []byte) (string, error)

	sto    *filesystem.Storage
	head   plumbing.Hash
	staged map[string]object.TreeEntry // by path; Name is unused
}

// NewRepo opens the bare repository at dir and creates it if necessary.
func NewRepo(dir string) (*Repo, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := &Repo{
		Dir: dir, Now: time.Now, Author: "Test Author", Email: "author@example.com", staged: map[string]object.TreeEntry{},
		sto: filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRUDefault()),
	}
	ref, err := r.sto.Reference(branchRef)
	if err == nil {
		return r, r.stage(ref.Hash())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := r.sto.Init(); err != nil {
		return nil, fmt.Errorf("make repository %s: %w", dir, err)
	}
	cfg := config.NewConfig()
	cfg.Core.IsBare = true
	if err := r.sto.SetConfig(cfg); err != nil {
		return nil, fmt.Errorf("make repository %s: %w", dir, err)
	}
	return r, r.sto.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, branchRef))
}

// Head returns the hash of the branch's head, "" before the first commit.
func (r *Repo) Head() string {
	if r.head.IsZero() {
		return ""
	}
	return r.head.String()
}

// Write stages files by slash-separated path. Existing files retain their modes.
func (r *Repo) Write(files map[string]string) error {
	for name, content := range files {
		mode := filemode.Regular
		if old, ok := r.staged[name]; ok && old.Mode == filemode.Executable {
			mode = old.Mode
		}
		if err := r.put(name, mode, []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

// Symlink stages a symbolic link.
func (r *Repo) Symlink(name, target string) error {
	return r.put(name, filemode.Symlink, []byte(target))
}

// SetExecutable stages a mode change of a staged or committed file.
func (r *Repo) SetExecutable(name string, on bool) error {
	e, ok := r.staged[name]
	if !ok {
		return fmt.Errorf("set mode of %s: %w", name, fs.ErrNotExist)
	}
	e.Mode = filemode.Regular
	if on {
		e.Mode = filemode.Executable
	}
	r.staged[name] = e
	return nil
}

// Submodule stages a reference to a commit of another repository.
func (r *Repo) Submodule(name, hash string) {
	r.staged[name] = object.TreeEntry{Mode: filemode.Submodule, Hash: plumbing.NewHash(hash)}
}

// Remove stages the removal of files, or of directories with their content.
func (r *Repo) Remove(names ...string) error {
	for _, name := range names {
		found := false
		for p := range r.staged {
			if p == name || strings.HasPrefix(p, name+"/") {
				delete(r.staged, p)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
		}
	}
	return nil
}

// CopyDir stages every regular file of fsys below the directory at ("." is the
// root).
func (r *Repo) CopyDir(fsys fs.FS, at string) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := filemode.Regular
		if info.Mode()&0o100 != 0 {
			mode = filemode.Executable
		}
		return r.put(path.Join(at, name), mode, data)
	})
}

// Commit commits the staged files to Branch and returns the commit's hash. A commit without
// changes is created, too.
func (r *Repo) Commit(message string) (string, error) {
	h, err := r.record(message)
	if err == nil {
		err = r.setHead(h)
	}
	if err != nil {
		return "", fmt.Errorf("commit %q: %w", message, err)
	}
	return h.String(), nil
}

// record stores a commit of the staged files on top of the head. It moves no branch.
func (r *Repo) record(message string) (plumbing.Hash, error) {
	tree, err := r.tree()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	who := object.Signature{Name: r.Author, Email: r.Email, When: r.Now()}
	c := &object.Commit{Author: who, Committer: who, Message: message, TreeHash: tree}
	if !r.head.IsZero() {
		c.ParentHashes = []plumbing.Hash{r.head}
	}
	if err := r.sign(c); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("sign it: %w", err)
	}
	return r.save(c)
}

// Reset moves Branch to an earlier commit, as a force-push does, and stages its files.
func (r *Repo) Reset(hash string) error {
	h := plumbing.NewHash(hash)
	if err := r.stage(h); err != nil {
		return fmt.Errorf("reset to %s: %w", hash, err)
	}
	return r.setHead(h)
}

// put stores a file's content and stages it.
func (r *Repo) put(name string, mode filemode.FileMode, data []byte) error {
	if !fs.ValidPath(strings.ToValidUTF8(name, "?")) || name == "." { // Git has names that are not UTF-8
		return fmt.Errorf("write %q: %w", name, fs.ErrInvalid)
	}
	o := r.sto.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	h, err := r.store(o)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	r.staged[name] = object.TreeEntry{Mode: mode, Hash: h}
	return nil
}

// stage replaces the staged files by those of a commit and makes it the head.
func (r *Repo) stage(commit plumbing.Hash) error {
	c, err := object.GetCommit(r.sto, commit)
	if err != nil {
		return err
	}
	tree, err := c.Tree()
	if err != nil {
		return err
	}
	staged := map[string]object.TreeEntry{}
	w := object.NewTreeWalker(tree, true, nil)
	defer w.Close()
	for {
		name, e, err := w.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return err
		}
		if e.Mode != filemode.Dir {
			staged[name] = object.TreeEntry{Mode: e.Mode, Hash: e.Hash}
		}
	}
	r.staged, r.head = staged, commit
	return nil
}

// setHead moves Branch.
func (r *Repo) setHead(h plumbing.Hash) error {
	r.head = h
	return r.setRef(branchRef, h)
}
