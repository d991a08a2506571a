package image

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/c785c783/piped/examples/release/tree"
)

// The user that the agent runs as, and the directory for its data.
const (
	userID  = 65532
	dataDir = "/var/lib/piped"
)

const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\npiped:x:65532:65532:piped:" + dataDir + ":/sbin/nologin\n"
	group  = "root:x:0:\npiped:x:65532:\n"
)

// system returns what a program needs of a machine: users, certificate authorities and
// time zones, those of goroot. It does not depend on the program's version.
func system(goroot string) ([]tree.File, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	zones, err := timeZones(goroot)
	if err != nil {
		return nil, err
	}
	files := append(zones,
		tree.Text("etc/passwd", []byte(passwd)), tree.Text("etc/group", []byte(group)), tree.Text("etc/ssl/certs/ca-certificates.crt", roots),
		tree.Directory("etc/piped", 0o755, 0), tree.Directory("tmp", 0o1777, 0), tree.Directory(dataDir, 0o700, userID))
	return tree.WithParents(files), nil
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

// timeZones returns the time zones of the Go toolchain.
func timeZones(goroot string) (files []tree.File, err error) {
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
		files = append(files, tree.Text(path.Join("usr/share/zoneinfo", f.Name), content))
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
