package app

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTheAgentEndsWhenItsDataDirectoryIsGone: the error names the missing directory, and
// what to do.
func TestTheAgentEndsWhenItsDataDirectoryIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		// other creates the immediate replacement of the data directory, if any.
		other  func(dir, other string) error
		damage func(dir, other string) error
		says   string
	}{
		"the directory is removed":     {damage: func(dir, _ string) error { return removeInUse(dir) }, says: "is gone"},
		"the directory is moved away":  {damage: os.Rename, says: "the data directory, "},
		"an empty one is in its place": {emptyDir, exchange, "is another one than at the start"},
		"a copy is in its place":       {copyInUse, exchange, "is another one than at the start"},
		"a file is in its place":       {emptyFile, exchange, "is another one than at the start"},
		"the store is another file": {copyStore, func(dir, other string) error {
			return os.Rename(other, filepath.Join(dir, "piped.db"))
		}, "the file of the store, "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			cfg, _, err := Kinds().LoadPiped(settings{dataDir: dir, remote: t.TempDir(), kubeconfig: filepath.Join(t.TempDir(), "none")}.configFile(t))
			if err != nil {
				t.Fatal(err)
			}
			a, err := New(t.Context(), cfg, Options{Logger: slog.New(slog.DiscardHandler), DataCheckEvery: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- a.Run(t.Context()) }()
			other := dir + ".other"
			if c.other != nil {
				if err := c.other(dir, other); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.damage(dir, other); err != nil {
				t.Fatal(err)
			}
			select {
			case err = <-done:
			case <-time.After(5 * time.Minute):
				t.Fatal("the agent still runs")
			}
			for _, part := range []string{c.says, dir, "the agent stops", "piped restore"} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %q in it", err, part)
				}
			}
		})
	}
	if dataWatchEvery*dataWatchFailures > time.Minute {
		t.Error("the missing directory is not noticed within a minute")
	}
}

// exchange swaps two paths atomically, so that a check never finds the path missing.
func exchange(dir, other string) error {
	return unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
}

// removeInUse removes a directory in which the running agent may still create files.
func removeInUse(dir string) error {
	for {
		if err := os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
}

// copyInUse copies a directory of which the running agent may remove files meanwhile.
func copyInUse(dir, other string) error {
	for {
		err := os.CopyFS(other, os.DirFS(dir))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(other); err != nil {
			return err
		}
	}
}

func copyStore(dir, other string) error {
	data, err := os.ReadFile(filepath.Join(dir, "piped.db"))
	if err != nil {
		return err
	}
	return os.WriteFile(other, data, 0o600)
}

func emptyDir(_, other string) error  { return os.Mkdir(other, 0o700) }
func emptyFile(_, other string) error { return os.WriteFile(other, nil, 0o600) }
