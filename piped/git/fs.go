package git

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

const maxSymlinks = 40 // in one path, as on Linux

// At returns the files of a commit, read from the object database on demand. It
// implements fs.ReadDirFS, fs.ReadFileFS, fs.StatFS and fs.ReadLinkFS and is safe for
// concurrent use.
//
// Symbolic links are followed inside the repository; links out of it cannot be opened. A
// submodule is an empty directory. Files larger than Config.MaxFileSize cannot be
// opened. Modes are Git's (0755 or 0644), times are those of the commit. The error is of
// kind NotFound if the mirror does not have the commit.
func (r *Repo) At(hash string) (fs.FS, error) {
	c, err := r.commit(hash)
	if err != nil {
		return nil, err
	}
	return &treeFS{objects: r.objects, root: c.TreeHash, maxSize: r.cfg.MaxFileSize, at: c.Committer.When.UTC()}, nil
}

// treeFS is a commit's tree as a file system.
type treeFS struct {
	objects *objects
	root    plumbing.Hash
	maxSize int64
	at      time.Time
}

var (
	_ fs.ReadDirFS  = (*treeFS)(nil)
	_ fs.ReadFileFS = (*treeFS)(nil)
	_ fs.StatFS     = (*treeFS)(nil)
	_ fs.ReadLinkFS = (*treeFS)(nil)
)

// Open opens a file, whose content is read at once, or a directory.
func (t *treeFS) Open(name string) (fs.File, error) {
	e, err := t.resolve(name, true)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	info := t.info(path.Base(name), e)
	if info.IsDir() {
		entries, err := t.list(e)
		if err != nil {
			return nil, pathError("open", name, err)
		}
		return &dir{info: info, entries: entries}, nil
	}
	data, err := t.objects.blob(e.Hash, t.maxSize)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return newFile(info, data), nil
}

// ReadFile returns a new slice with the content of a file.
func (t *treeFS) ReadFile(name string) ([]byte, error) {
	e, err := t.resolve(name, true)
	if err == nil && isDir(e) {
		err = errors.New("is a directory")
	}
	if err != nil {
		return nil, pathError("read", name, err)
	}
	data, err := t.objects.blob(e.Hash, t.maxSize)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return data, nil
}

// ReadDir lists a directory, sorted by name. Symbolic links are not followed.
func (t *treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := t.resolve(name, true)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	entries, err := t.list(e)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	return entries, nil
}

// Stat describes a file or directory, following symbolic links.
func (t *treeFS) Stat(name string) (fs.FileInfo, error) { return t.stat(name, true) }

// Lstat describes a file, directory or symbolic link.
func (t *treeFS) Lstat(name string) (fs.FileInfo, error) { return t.stat(name, false) }

func (t *treeFS) stat(name string, follow bool) (fs.FileInfo, error) {
	e, err := t.resolve(name, follow)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	info := t.info(path.Base(name), e)
	if err := info.loadSize(); err != nil {
		return nil, pathError("stat", name, err)
	}
	return info, nil
}

// ReadLink returns the target of a symbolic link, inside the repository or not.
func (t *treeFS) ReadLink(name string) (string, error) {
	e, err := t.resolve(name, false)
	if err == nil && e.Mode != filemode.Symlink {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	target, err := t.objects.blob(e.Hash, maxSymlinkLength)
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return string(target), nil
}

// pathError returns err as an *fs.PathError.
func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// resolve finds the entry at name. It records the directories of the walk, so that ".." in a
// symbolic link refers to the parent of the directory that contains the link.
func (t *treeFS) resolve(name string, follow bool) (object.TreeEntry, error) {
	root := object.TreeEntry{Name: ".", Mode: filemode.Dir, Hash: t.root}
	if !fs.ValidPath(strings.ToValidUTF8(name, "?")) { // Git has names that are not UTF-8: listed files can be opened
		return root, fs.ErrInvalid
	}
	trail := []object.TreeEntry{root}
	links := 0
	for todo := components(name); len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		here := trail[len(trail)-1]
		if next == ".." {
			if len(trail) == 1 {
				return root, errEscapes
			}
			trail = trail[:len(trail)-1]
			continue
		}
		e, err := t.child(here, next)
		if err != nil {
			return root, err
		}
		if e.Mode != filemode.Symlink || len(todo) == 0 && !follow {
			trail = append(trail, e)
			continue
		}
		if links++; links > maxSymlinks {
			return root, errors.New("too many symbolic links")
		}
		target, err := t.objects.blob(e.Hash, maxSymlinkLength)
		if err != nil {
			return root, err
		}
		if path.IsAbs(string(target)) {
			return root, errEscapes
		}
		todo = append(components(string(target)), todo...)
	}
	return trail[len(trail)-1], nil
}

var errEscapes = fmt.Errorf("a symbolic link points out of the repository: %w", fs.ErrPermission)

// components splits a slash-separated path and omits empty components and ".".
func components(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// child returns one entry of a directory.
func (t *treeFS) child(e object.TreeEntry, name string) (object.TreeEntry, error) {
	if !isDir(e) {
		return e, fs.ErrNotExist
	}
	if e.Mode == filemode.Submodule {
		return e, fs.ErrNotExist
	}
	entries, err := t.objects.tree(e.Hash)
	if err != nil {
		return e, err
	}
	if found, ok := find(entries, name); ok {
		return found, nil
	}
	return e, fs.ErrNotExist
}

func find(entries []object.TreeEntry, name string) (object.TreeEntry, bool) {
	i, ok := slices.BinarySearchFunc(entries, name, func(e object.TreeEntry, name string) int { return cmp.Compare(e.Name, name) })
	if !ok {
		return object.TreeEntry{}, false
	}
	return entries[i], true
}

func isDir(e object.TreeEntry) bool {
	return e.Mode == filemode.Dir || e.Mode == filemode.Submodule
}

// list returns the entries of a directory.
func (t *treeFS) list(e object.TreeEntry) ([]fs.DirEntry, error) {
	if !isDir(e) {
		return nil, errors.New("not a directory")
	}
	if e.Mode == filemode.Submodule {
		return nil, nil
	}
	entries, err := t.objects.tree(e.Hash)
	if err != nil {
		return nil, err
	}
	list := make([]fs.DirEntry, len(entries))
	for i, e := range entries {
		list[i] = t.info(e.Name, e)
	}
	return list, nil
}

// info returns the description of an entry, without its size.
func (t *treeFS) info(name string, e object.TreeEntry) *info {
	return &info{name: name, entry: e, at: t.at, objects: t.objects}
}
