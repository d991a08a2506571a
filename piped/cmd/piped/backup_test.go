package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteWhole: a file exists only when it is complete, readable by its owner only.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "backup")
	broken := errors.New("broken")
	fails := func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	}
	if err := writeWhole(path, fails); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	if left := names(); left != nil {
		t.Errorf("left: %v", left)
	}
	for _, text := range []string{"first", "second"} {
		err := writeWhole(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := writeWhole(path, fails); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("holds %q, %v; want %q", got, err, text)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %s, %v", info.Mode(), err)
		}
	}
	if left := names(); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}
