package git

import (
	"bytes"
	"io"
	"io/fs"
	"time"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// info describes one file or directory, as fs.FileInfo and as fs.DirEntry.
type info struct {
	name    string
	entry   object.TreeEntry
	at      time.Time
	size    int64 // after loadSize
	objects *objects
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) ModTime() time.Time { return i.at }
func (i *info) IsDir() bool        { return isDir(i.entry) }
func (i *info) Sys() any           { return nil }
func (i *info) Type() fs.FileMode  { return i.Mode().Type() }
func (i *info) String() string     { return fs.FormatFileInfo(i) }

// Mode implements fs.FileInfo.
func (i *info) Mode() fs.FileMode {
	switch i.entry.Mode {
	case filemode.Dir, filemode.Submodule:
		return fs.ModeDir | 0o755
	case filemode.Symlink:
		return fs.ModeSymlink | 0o777
	case filemode.Executable:
		return 0o755
	default:
		return 0o644
	}
}

// Info returns i with its size.
func (i *info) Info() (fs.FileInfo, error) {
	sized := *i
	if err := sized.loadSize(); err != nil {
		return nil, pathError("stat", i.name, err)
	}
	return &sized, nil
}

// loadSize reads the size of a file; the size of a directory is 0.
func (i *info) loadSize() (err error) {
	if !i.IsDir() {
		i.size, err = i.objects.size(i.entry.Hash)
	}
	return err
}

// file is an open file with its content in memory.
type file struct {
	*bytes.Reader
	info *info
}

func newFile(i *info, data []byte) *file {
	i.size = int64(len(data))
	return &file{Reader: bytes.NewReader(data), info: i}
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

// dir is an open directory.
type dir struct {
	info    *info
	entries []fs.DirEntry // not yet read
}

func (d *dir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dir) Close() error               { return nil }

func (d *dir) Read([]byte) (int, error) {
	return 0, pathError("read", d.info.name, fs.ErrInvalid)
}

// ReadDir implements fs.ReadDirFile.
func (d *dir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.entries)
	} else if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	list := d.entries[:n:n]
	d.entries = d.entries[n:]
	return list, nil
}
