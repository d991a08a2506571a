package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// localDialer reads a repository on this machine's file system. go-git's file
// transport would run git-upload-pack, and its in-process server walks the whole history
// for each fetch. Here the reference is read from its file, and the missing objects are
// copied.
type localDialer struct{ path string }

func (d *localDialer) dial(context.Context) (session, error) {
	for _, dir := range []string{d.path, filepath.Join(d.path, ".git")} {
		if isRepository(dir) {
			sto := filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(localCacheSize),
				filesystem.Options{MaxOpenDescriptors: openPacks, LargeObjectThreshold: largeObjectToDisk, AlternatesFS: osfs.New("/")})
			return &localSession{dir: dir, sto: sto, batch: copyBatchSize}, nil
		}
	}
	if _, err := os.Stat(d.path); err != nil {
		return nil, err
	}
	return nil, errors.New("there is no Git repository in this directory")
}

func (d *localDialer) close() error { return nil }

func isRepository(dir string) bool {
	head, errHead := os.Stat(filepath.Join(dir, "HEAD"))
	objects, errObjects := os.Stat(filepath.Join(dir, "objects"))
	return errHead == nil && errObjects == nil && head.Mode().IsRegular() && objects.IsDir()
}

// localSession is an open repository on this machine.
type localSession struct {
	dir   string
	sto   *filesystem.Storage
	batch int64 // bytes of objects copied at once
}

func (s *localSession) Close() error { return s.sto.Close() }

func (s *localSession) head(_ context.Context, name plumbing.ReferenceName) (plumbing.Hash, error) {
	ref, err := storer.ResolveReference(s.sto, name)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("read %s: %w", shortRef(name), err)
	}
	return ref.Hash(), nil
}

// fetch copies directories and files first and the commits last, so that the mirror never
// refers to missing objects.
func (s *localSession) fetch(w *watchdog, want plumbing.Hash, into *objects) error {
	w.rest() // copying is our own work
	s.findPack(want)
	c := &copier{ctx: w, from: s.sto, into: into, limit: s.batch, seen: map[plumbing.Hash]bool{}}
	commits, trees, err := c.missingCommits(want)
	if err != nil {
		return err
	}
	for _, t := range trees {
		if err := c.tree(t); err != nil {
			return err
		}
	}
	c.batch = append(c.batch, commits...)
	return c.flush()
}

// findPack reads the list of packs until a commit is found. During concurrent writes to the
// directory go-git may find it empty: a listed file may be renamed before it is read.
func (s *localSession) findPack(commit plumbing.Hash) {
	for range listTries {
		if s.sto.HasEncodedObject(commit) == nil {
			return
		}
		s.sto.Reindex()
	}
}

// copier copies objects in batches, each a pack of its own.
type copier struct {
	ctx   context.Context
	from  *filesystem.Storage
	into  *objects
	limit int64

	seen  map[plumbing.Hash]bool
	batch []plumbing.Hash
	bytes int64
}

// missingCommits returns the commits that the mirror lacks, and their trees.
func (c *copier) missingCommits(head plumbing.Hash) (commits, trees []plumbing.Hash, err error) {
	for todo := []plumbing.Hash{head}; len(todo) > 0; {
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if c.skip(h) {
			continue
		}
		commit, err := object.GetCommit(c.from, h)
		if err != nil {
			return nil, nil, fmt.Errorf("read commit %s: %w", h, err)
		}
		commits, trees = append(commits, h), append(trees, commit.TreeHash)
		todo = append(todo, commit.ParentHashes...)
	}
	return commits, trees, nil
}

// tree copies a directory after its content.
func (c *copier) tree(h plumbing.Hash) error {
	if c.skip(h) {
		return nil
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if n, err := c.from.EncodedObjectSize(h); err == nil && n > c.into.limits.meta {
		return beyond("read tree %s: a directory of %d bytes; expected at most %d", h, n, c.into.limits.meta)
	}
	t, err := object.GetTree(c.from, h)
	if err != nil {
		return fmt.Errorf("read tree %s: %w", h, err)
	}
	for _, e := range t.Entries {
		switch {
		case e.Mode == filemode.Dir:
			err = c.tree(e.Hash)
		case e.Mode != filemode.Submodule && !c.skip(e.Hash):
			err = c.add(e.Hash)
		}
		if err != nil {
			return err
		}
	}
	return c.add(h)
}

// skip reports whether an object needs no copy, and marks it as seen.
func (c *copier) skip(h plumbing.Hash) bool {
	if c.seen[h] {
		return true
	}
	c.seen[h] = true
	return c.into.has(h)
}

// add adds an object to the batch and copies a full batch. It omits files that are too large.
func (c *copier) add(h plumbing.Hash) error {
	n, err := c.from.EncodedObjectSize(h)
	if err != nil {
		return fmt.Errorf("read object %s: %w", h, err)
	}
	if n > c.into.limits.blob {
		c.into.partial = true
		return nil // too large; omitted as in a pack from a server
	}
	c.batch, c.bytes = append(c.batch, h), c.bytes+n
	if c.bytes < c.limit {
		return nil
	}
	return c.flush()
}

// flush copies the objects of the batch as one pack.
func (c *copier) flush() error {
	if len(c.batch) == 0 {
		return nil
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	err := c.into.addPack(c.ctx, func(w io.Writer) error {
		// No search for deltas: it costs more than it saves here.
		if _, err := packfile.NewEncoder(w, c.from, false).Encode(c.batch, 0); err != nil {
			return fmt.Errorf("copy objects: %w", err)
		}
		return nil
	})
	c.batch, c.bytes = nil, 0
	return err
}
