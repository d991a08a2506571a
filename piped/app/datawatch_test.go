package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
)

// TestTheAgentEndsWhenItsDataDirectoryIsGone: it says what is gone, and what to do.
func TestTheAgentEndsWhenItsDataDirectoryIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(dir string) error
		says   string
	}{
		"the directory is removed": {os.RemoveAll, "is gone"},
		"the directory is moved away": {func(dir string) error { return os.Rename(dir, dir+".old") },
			"the data directory, "},
		"an empty one is in its place": {func(dir string) error {
			return errorsOf(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700))
		}, "is another one than at the start"},
		"a copy is in its place": {func(dir string) error {
			return errorsOf(os.CopyFS(dir+".copy", os.DirFS(dir)), os.Rename(dir, dir+".old"), os.Rename(dir+".copy", dir))
		}, "is another one than at the start"},
		"a file is in its place": {func(dir string) error {
			return errorsOf(os.Rename(dir, dir+".old"), os.WriteFile(dir, nil, 0o600))
		}, "is another one than at the start"},
		"the store is another file": {func(dir string) error {
			db := filepath.Join(dir, "piped.db")
			data, err := os.ReadFile(db)
			return errorsOf(err, os.WriteFile(db+".new", data, 0o600), os.Rename(db+".new", db))
		}, "the file of the store, "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			cfg, _, err := config.LoadPiped(settings{dataDir: dir, remote: t.TempDir(), kubeconfig: filepath.Join(t.TempDir(), "none")}.configFile(t))
			if err != nil {
				t.Fatal(err)
			}
			a, err := New(t.Context(), cfg, Options{Logger: slog.New(slog.DiscardHandler), DataCheckEvery: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- a.Run(t.Context()) }()
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case err = <-done:
			case <-time.After(time.Minute):
				t.Fatal("the agent goes on")
			}
			for _, part := range []string{c.says, dir, "the agent stops", "piped restore"} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %q in it", err, part)
				}
			}
		})
	}
	if dataWatchEvery*dataWatchFailures > time.Minute {
		t.Error("what is gone is not noticed within a minute")
	}
}

// errorsOf returns the first error.
func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
