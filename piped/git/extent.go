package git

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// treeExtent is the size of a directory with everything below it.
type treeExtent struct {
	paths int64 // files and directories
	bytes int64 // length of their paths, relative to the directory
	depth int   // of nested directories
}

// maxExtents bounds the cache of extents.
const maxExtents = 200_000

// checkTree returns an error with cause ErrBeyond and the path if the root directory of a
// commit exceeds the limits. Directories with equal hashes are read once, and the results are
// cached.
func (o *objects) checkTree(ctx context.Context, root plumbing.Hash) error {
	_, err := o.extent(ctx, "", root, 0)
	return err
}

// checkCommitTree is checkTree for a commit. If files were omitted from a pack that o
// received, it also checks that every file of the commit exists.
func (o *objects) checkCommitTree(ctx context.Context, h plumbing.Hash) error {
	c, err := o.commit(h)
	if err != nil {
		return err
	}
	if err := o.checkTree(ctx, c.TreeHash); err != nil || !o.partial {
		return err
	}
	return o.checkFiles(ctx, "", c.TreeHash, map[plumbing.Hash]bool{})
}

// checkFiles returns an error for the first file that is missing because it was omitted from
// the received pack. Directories in seen are already checked.
func (o *objects) checkFiles(ctx context.Context, dir string, h plumbing.Hash, seen map[plumbing.Hash]bool) error {
	if seen[h] {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	entries, err := o.tree(h)
	if errors.Is(err, errName) {
		return nil // reading it returns the error
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name)
		switch {
		case entry.Mode == filemode.Dir:
			if err := o.checkFiles(ctx, name, entry.Hash, seen); err != nil {
				return err
			}
		case entry.Mode != filemode.Submodule && !o.has(entry.Hash):
			return beyond("%s: a file of more than %d bytes, or a change of so large a one", shortPath(name), o.limits.blob)
		}
	}
	seen[h] = true
	return nil
}

// extent returns the size of a directory; dir is its path. It reads at most as many entries as
// the limits allow.
func (o *objects) extent(ctx context.Context, dir string, h plumbing.Hash, depth int) (e treeExtent, err error) {
	if known, ok := o.knownExtent(h); ok {
		return known, o.within(dir, known, depth)
	}
	if ctx.Err() != nil {
		return e, context.Cause(ctx)
	}
	if depth > o.limits.depth {
		return e, beyond("%s: directories are nested more than %d deep", shortPath(dir), o.limits.depth)
	}
	entries, err := o.tree(h)
	if errors.Is(err, ErrBeyond) {
		return e, fmt.Errorf("%s: %w", shortPath(dir), err)
	}
	if errors.Is(err, errName) {
		return e, nil // reading it returns the error
	}
	if err != nil {
		return e, err
	}
	for _, entry := range entries {
		e.paths, e.bytes = e.paths+1, e.bytes+int64(len(entry.Name))+1
		if entry.Mode == filemode.Dir {
			below, err := o.extent(ctx, path.Join(dir, entry.Name), entry.Hash, depth+1)
			if err != nil {
				return e, err
			}
			e.paths, e.bytes = e.paths+below.paths, e.bytes+below.bytes+below.paths*int64(len(entry.Name)+1)
			e.depth = max(e.depth, below.depth+1)
		}
		if err := o.within(path.Join(dir, entry.Name), e, depth); err != nil {
			return e, err
		}
	}
	o.rememberExtent(h, e)
	return e, nil
}

// within returns an error if e, the size of a directory at a depth so far, exceeds the limits.
// at is the path read last.
func (o *objects) within(at string, e treeExtent, depth int) error {
	switch {
	case e.paths > int64(o.limits.paths):
		return beyond("%s: the commit holds more than %d files and directories", shortPath(at), o.limits.paths)
	case e.bytes > o.limits.pathBytes:
		return beyond("%s: the paths of the commit's files have more than %d bytes", shortPath(at), o.limits.pathBytes)
	case depth+e.depth > o.limits.depth:
		return beyond("%s: directories are nested more than %d deep", shortPath(at), o.limits.depth)
	}
	return nil
}

func (o *objects) knownExtent(h plumbing.Hash) (treeExtent, bool) {
	o = o.holder(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.measures[h]
	return e, ok
}

func (o *objects) rememberExtent(h plumbing.Hash, e treeExtent) {
	o = o.holder(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.measures == nil || len(o.measures) >= maxExtents {
		o.measures = map[plumbing.Hash]treeExtent{}
	}
	o.measures[h] = e
}

// shortPath shortens a path, which may be empty, for messages.
func shortPath(name string) string {
	const most = 200
	switch {
	case name == "":
		return "the root directory"
	case len(name) > most:
		return name[:most] + "..."
	}
	return name
}
