package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// maxText is the maximum size of a template and of a source of an attachment in bytes.
const maxText = 1 << 20

const maxSymlinks = 40 // per path, as on Linux

// overlay is a tree in which the content of some files is replaced, also if they are opened
// through symbolic links.
type overlay struct {
	tree     fs.FS
	rendered map[string][]byte // by the file's path in the tree without symbolic links
	redactor *Redactor
}

func newOverlay(tree fs.FS) *overlay { return &overlay{tree: tree, rendered: map[string][]byte{}} }

var (
	_ fs.ReadDirFS  = (*overlay)(nil)
	_ fs.ReadFileFS = (*overlay)(nil)
	_ fs.StatFS     = (*overlay)(nil)
	_ fs.ReadLinkFS = (*overlay)(nil)
)

// find returns the rendered content of a file, false if the file was not rendered.
func (o *overlay) find(name string) ([]byte, bool) {
	if !fs.ValidPath(name) {
		return nil, false
	}
	file, err := o.follow(name)
	if err != nil {
		return nil, false
	}
	text, ok := o.rendered[file]
	return text, ok
}

// Open opens a file or a directory.
func (o *overlay) Open(name string) (fs.File, error) {
	f, err := o.tree.Open(name)
	if err != nil {
		return nil, err
	}
	text, ok := o.find(name)
	if !ok {
		if list, ok := f.(fs.ReadDirFile); ok {
			return &listing{ReadDirFile: list, name: name, files: o}, nil
		}
		return f, nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &file{Reader: bytes.NewReader(text), info: sized{info, int64(len(text))}}, nil
}

// ReadFile returns a copy of a file's content.
func (o *overlay) ReadFile(name string) ([]byte, error) {
	if text, ok := o.find(name); ok {
		return bytes.Clone(text), nil
	}
	return fs.ReadFile(o.tree, name)
}

// Stat describes a file or directory. It follows symbolic links.
func (o *overlay) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(o.tree, name)
	if text, ok := o.find(name); ok && err == nil {
		return sized{info, int64(len(text))}, nil
	}
	return info, err
}

// Lstat describes a file, directory or symbolic link.
func (o *overlay) Lstat(name string) (fs.FileInfo, error) {
	info, err := fs.Lstat(o.tree, name)
	if err != nil || !info.Mode().IsRegular() {
		return info, err
	}
	return o.Stat(name)
}

// ReadLink returns the target of a symbolic link.
func (o *overlay) ReadLink(name string) (string, error) { return fs.ReadLink(o.tree, name) }

// ReadDir lists a directory, sorted by name.
func (o *overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.tree, name)
	return o.entries(name, entries), err
}

// entries wraps the entries of directory name so that they have the sizes of the overlay.
func (o *overlay) entries(name string, entries []fs.DirEntry) []fs.DirEntry {
	out := make([]fs.DirEntry, len(entries))
	for i, e := range entries {
		out[i] = entry{DirEntry: e, name: path.Join(name, e.Name()), files: o}
	}
	return out
}

type entry struct {
	fs.DirEntry
	name  string
	files *overlay
}

func (e entry) Info() (fs.FileInfo, error) { return e.files.Lstat(e.name) }

type listing struct {
	fs.ReadDirFile
	name  string
	files *overlay
}

func (d *listing) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	return d.files.entries(d.name, entries), err
}

type file struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

// locate returns the path without symbolic links of a file whose name is relative to dir, the
// application's directory. If that is not a regular file in dir, the error is of kind Invalid.
func (o *overlay) locate(dir, name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", deploy.Errorf(deploy.Invalid, "expected the name of a file inside the application's directory, found %q", name)
	}
	root, err := o.follow(path.Clean(dir))
	if err != nil {
		return "", err
	}
	file, err := o.follow(path.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", deploy.Errorf(deploy.Invalid, "there is no file %s in the commit", path.Join(dir, name))
	}
	if err != nil {
		return "", err
	}
	if root != "." && !strings.HasPrefix(file, root+"/") {
		return "", deploy.Errorf(deploy.Invalid, "%s is a symbolic link out of the application's directory, to %s; only the application's own files can be named", name, file)
	}
	info, err := fs.Lstat(o.tree, file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", deploy.Errorf(deploy.Invalid, "%s is not a regular file", path.Join(dir, name))
	}
	return file, nil
}

// follow resolves all symbolic links in a path.
func (o *overlay) follow(name string) (string, error) {
	at, links := ".", 0
	for todo := strings.Split(path.Clean(name), "/"); len(todo) > 0; {
		next := path.Join(at, todo[0])
		todo = todo[1:]
		if next == ".." || strings.HasPrefix(next, "../") {
			return "", deploy.Errorf(deploy.Invalid, "%s: a symbolic link points out of the repository", name)
		}
		info, err := fs.Lstat(o.tree, next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxSymlinks {
			return "", deploy.Errorf(deploy.Invalid, "%s: too many symbolic links", name)
		}
		target, err := fs.ReadLink(o.tree, next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			return "", deploy.Errorf(deploy.Invalid, "%s: a symbolic link points out of the repository", name)
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return at, nil
}

// text returns the content of a file whose path is from locate, of at most maxText bytes.
func (o *overlay) text(file string) (string, error) {
	f, err := o.Open(file)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", file, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxText {
		return "", deploy.Errorf(deploy.Invalid, "%s: the file is larger than %d bytes, which templates and attachments may have", file, maxText)
	}
	return string(data), nil
}
