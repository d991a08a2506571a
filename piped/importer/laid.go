package importer

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Lay returns a tree with files laid over another one.
func Lay(tree fs.FS, files []File) fs.FS {
	l := &laid{tree: tree, files: map[string][]byte{}, dirs: map[string][]string{}}
	for _, f := range files {
		l.files[f.Path] = f.Text
		for at := f.Path; at != "."; at = path.Dir(at) {
			if dir := path.Dir(at); !slices.Contains(l.dirs[dir], path.Base(at)) {
				l.dirs[dir] = append(l.dirs[dir], path.Base(at))
			}
		}
	}
	return l
}

// laid is a tree with additional files. dirs are the names in each of their directories.
type laid struct {
	tree  fs.FS
	files map[string][]byte
	dirs  map[string][]string
}

var (
	_ fs.ReadDirFS  = (*laid)(nil)
	_ fs.StatFS     = (*laid)(nil)
	_ fs.ReadLinkFS = (*laid)(nil)
)

// Open opens a file or a directory.
func (l *laid) Open(name string) (fs.File, error) {
	text, isFile := l.files[name]
	if isFile {
		return &laidFile{bytes.NewReader(text), l.info(name)}, nil
	}
	if _, isDir := l.dirs[name]; !isDir {
		return l.tree.Open(name)
	}
	entries, err := l.ReadDir(name)
	return &laidDir{l.info(name), entries}, err
}

func (l *laid) info(name string) laidInfo {
	text, isFile := l.files[name]
	return laidInfo{path.Base(name), int64(len(text)), !isFile}
}

// Stat describes a file or directory.
func (l *laid) Stat(name string) (fs.FileInfo, error) {
	_, isFile := l.files[name]
	if _, isDir := l.dirs[name]; isFile || isDir {
		return l.info(name), nil
	}
	return fs.Stat(l.tree, name)
}

// Lstat describes a file, directory or symbolic link.
func (l *laid) Lstat(name string) (fs.FileInfo, error) {
	_, isFile := l.files[name]
	if _, isDir := l.dirs[name]; isFile || isDir {
		return l.info(name), nil
	}
	return fs.Lstat(l.tree, name)
}

// ReadLink returns the target of a symbolic link.
func (l *laid) ReadLink(name string) (string, error) { return fs.ReadLink(l.tree, name) }

// ReadDir lists a directory, sorted by name.
func (l *laid) ReadDir(name string) ([]fs.DirEntry, error) {
	added := l.dirs[name]
	entries, err := fs.ReadDir(l.tree, name)
	if err != nil && len(added) == 0 {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(added, e.Name()) })
	for _, base := range added {
		entries = append(entries, fs.FileInfoToDirEntry(l.info(path.Join(name, base))))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

type laidInfo struct {
	name string
	size int64
	dir  bool
}

func (i laidInfo) Name() string       { return i.name }
func (i laidInfo) Size() int64        { return i.size }
func (i laidInfo) ModTime() time.Time { return time.Time{} }
func (i laidInfo) IsDir() bool        { return i.dir }
func (i laidInfo) Sys() any           { return nil }

func (i laidInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

type laidFile struct {
	*bytes.Reader
	info laidInfo
}

func (f *laidFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *laidFile) Close() error               { return nil }

type laidDir struct {
	info laidInfo
	rest []fs.DirEntry
}

func (d *laidDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *laidDir) Close() error               { return nil }

func (d *laidDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

// ReadDir returns the next n entries, or all with n <= 0.
func (d *laidDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out, nil
}
