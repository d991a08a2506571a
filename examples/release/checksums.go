package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// checksums writes the checksums of the release's files as `sha256sum --check` reads
// them. The OCI layout has its own: its files are named after them.
func (r release) checksums() error {
	entries, err := os.ReadDir(r.dir) // sorted
	if err != nil {
		return fmt.Errorf("list the files of the release: %w", err)
	}
	var out bytes.Buffer
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		sum, err := sumOf(filepath.Join(r.dir, e.Name()))
		if err != nil {
			return fmt.Errorf("calculate a checksum: %w", err)
		}
		fmt.Fprintf(&out, "%x  %s\n", sum, e.Name())
	}
	return r.write("checksums.txt", out.Bytes())
}

func sumOf(file string) (sum []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
