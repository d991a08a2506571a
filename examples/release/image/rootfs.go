package image

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user that the agent runs as, and the directory for its data.
const (
	userID  = 65532
	dataDir = "/var/lib/piped"
)

// file is a file or a directory of the image.
type file struct {
	name    string // without a slash in front
	mode    int64
	owner   int
	dir     bool
	content func() (io.ReadCloser, int64, error)
}

func directory(name string, mode int64, owner int) file {
	return file{name: strings.Trim(name, "/"), mode: mode, owner: owner, dir: true}
}

func regular(name string, content []byte) file {
	return file{name: name, mode: 0o644, content: func() (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(content)), int64(len(content)), nil
	}}
}

// program is an executable whose content is read when it is needed.
func program(name, source string) file {
	return file{name: name, mode: 0o755, content: func() (io.ReadCloser, int64, error) {
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

const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\npiped:x:65532:65532:piped:" + dataDir + ":/sbin/nologin\n"
	group  = "root:x:0:\npiped:x:65532:\n"
)

// system returns what a program needs of a machine: users, certificate authorities and
// time zones, those of goroot. It does not depend on the program's version.
func system(goroot string) ([]file, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	zones, err := timeZones(goroot)
	if err != nil {
		return nil, err
	}
	files := append(zones,
		regular("etc/passwd", []byte(passwd)), regular("etc/group", []byte(group)), regular("etc/ssl/certs/ca-certificates.crt", roots),
		directory("etc/piped", 0o755, 0), directory("tmp", 0o1777, 0), directory(dataDir, 0o700, userID))
	return withParents(files), nil
}

// certificates returns Mozilla's certificate authorities as the Go team publishes them.
// One that is trusted only for certificates issued before some day is left out: a PEM
// file cannot express that.
func certificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// timeZones returns the time zones that the Go tool brings.
func timeZones(goroot string) (files []file, err error) {
	archive := filepath.Join(goroot, "lib", "time", "zoneinfo.zip")
	r, err := zip.OpenReader(archive)
	if err != nil {
		return nil, fmt.Errorf("read the time zones of Go: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, f := range r.File {
		if f.Mode().IsDir() {
			continue
		}
		content, err := readZipped(f)
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", f.Name, archive, err)
		}
		files = append(files, regular(path.Join("usr/share/zoneinfo", f.Name), content))
	}
	return files, nil
}

func readZipped(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

// withParents adds the directories that the files lie in, and sorts all by name.
func withParents(files []file) []file {
	seen := map[string]bool{".": true}
	for _, f := range files {
		seen[f.name] = true
	}
	for _, f := range files {
		for dir := path.Dir(f.name); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			files = append(files, directory(dir, 0o755, 0))
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files
}

// writeTar writes files with one time of modification.
func writeTar(w io.Writer, files []file, modified time.Time) error {
	out := tar.NewWriter(w)
	for _, f := range files {
		if err := f.write(out, modified); err != nil {
			return fmt.Errorf("write %s into the image: %w", f.name, err)
		}
	}
	return out.Close()
}

func (f file) write(out *tar.Writer, modified time.Time) (err error) {
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
