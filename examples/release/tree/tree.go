// Package tree writes trees of files into tar archives whose bytes depend on nothing but
// the files: not on their order, owners and times on this machine. It never reads more of
// a file than it writes.
package tree

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// File is a file or a directory of a tree.
type File struct {
	name    string // without a slash in front
	mode    int64
	owner   int // the user and the group
	dir     bool
	content func() (io.ReadCloser, int64, error)
}

// Directory returns a directory.
func Directory(name string, mode int64, owner int) File {
	return File{name: strings.Trim(name, "/"), mode: mode, owner: owner, dir: true}
}

// Text returns a file that anyone may read.
func Text(name string, content []byte) File {
	return File{name: name, mode: 0o644, content: func() (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(content)), int64(len(content)), nil
	}}
}

// Executable returns a program whose content is that of a file of this machine, which is
// read when it is needed.
func Executable(name, source string) File {
	return File{name: name, mode: 0o755, content: func() (io.ReadCloser, int64, error) {
		f, err := os.Open(source)
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}}
}

// WithParents adds the directories that the files lie in.
func WithParents(files []File) []File {
	seen := map[string]bool{".": true}
	for _, f := range files {
		seen[f.name] = true
	}
	for _, f := range files {
		for dir := path.Dir(f.name); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			files = append(files, Directory(dir, 0o755, 0))
		}
	}
	return files
}

// Write writes files, sorted by name, with one time of modification.
func Write(w io.Writer, files []File, modified time.Time) error {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.name, b.name) })
	out := tar.NewWriter(w)
	for _, f := range sorted {
		if err := f.write(out, modified); err != nil {
			return fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	return out.Close()
}

// WriteArchive writes files as a tar file that is compressed with gzip.
func WriteArchive(file string, files []File, modified time.Time) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write an archive: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	compressed := gzip.NewWriter(f) // without a name and a time
	if err := Write(compressed, files, modified); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return compressed.Close()
}

func (f File) write(out *tar.Writer, modified time.Time) (err error) {
	header := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, ModTime: modified, Format: tar.FormatUSTAR}
	if f.dir {
		header.Typeflag, header.Name = tar.TypeDir, f.name+"/"
		return out.WriteHeader(header)
	}
	content, size, err := f.content()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	header.Typeflag, header.Size = tar.TypeReg, size
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}
