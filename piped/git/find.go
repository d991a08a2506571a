package git

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// Find returns the paths of all files below dir whose base names satisfy wanted, in the order
// of a walk. It does not enter directories whose base names enter rejects. Symbolic links are
// not followed, but are returned if wanted. Equal directories are read once. The error has the
// cause ErrBeyond, with a path, if there are more than most files or the commit exceeds the
// bounds.
func (t *treeFS) Find(ctx context.Context, dir string, enter, wanted func(name string) bool, most int) ([]string, error) {
	e, err := t.resolve(dir, true)
	if err == nil && e.Mode != filemode.Dir {
		err = errors.New("not a directory")
	}
	if err == nil {
		err = t.objects.checkTree(ctx, t.root)
	}
	if err != nil {
		return nil, pathError("find", dir, err)
	}
	f := &finder{ctx: ctx, objects: t.objects, enter: enter, wanted: wanted, most: most, known: map[plumbing.Hash][]string{}}
	found, err := f.below(dir, e.Hash)
	if errors.Is(err, ErrBeyond) {
		return nil, err // the error contains the path
	}
	if err != nil {
		return nil, pathError("find", dir, err)
	}
	for i, name := range found {
		found[i] = path.Join(dir, name)
	}
	return found, nil
}

// _ checks that files of Repo.At have the method Find.
var _ interface {
	fs.FS
	Find(ctx context.Context, dir string, enter, wanted func(name string) bool, most int) ([]string, error)
} = (*treeFS)(nil)

// finder finds files below one directory.
type finder struct {
	ctx           context.Context
	objects       *objects
	enter, wanted func(name string) bool
	most          int
	known         map[plumbing.Hash][]string // results by directory, relative to it
}

// below returns the wanted files below a directory, relative to it; dir is its path.
func (f *finder) below(dir string, h plumbing.Hash) ([]string, error) {
	if known, ok := f.known[h]; ok {
		return known, nil
	}
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	entries, err := f.objects.tree(h)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		switch {
		case e.Mode == filemode.Dir && f.enter(e.Name):
			below, err := f.below(path.Join(dir, e.Name), e.Hash)
			if err != nil {
				return nil, err
			}
			for _, name := range below {
				found = append(found, e.Name+"/"+name)
			}
		case e.Mode != filemode.Dir && e.Mode != filemode.Submodule && f.wanted(e.Name):
			found = append(found, e.Name)
		}
		if len(found) > f.most {
			return nil, beyond("%s: one of more than %d such files", shortPath(path.Join(dir, found[f.most])), f.most)
		}
	}
	f.known[h] = found
	return found, nil
}
