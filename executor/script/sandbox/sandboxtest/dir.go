// Package sandboxtest creates directories for tests of scripts that run as other users, and builds a small
// launcher.
package sandboxtest

import (
	"os"
	"testing"
)

// PublicDir creates a directory that all users can enter. It is removed with the test.
func PublicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "script-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}
