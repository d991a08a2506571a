// Package programs finds piped and pipectl for tests that run them as a user does. It
// builds them where the Makefile has not, and changes nothing else.
package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const module = "github.com/c785c783/piped/"

// names are those of the programs.
var names = []string{"piped", "pipectl"}

// Dir returns a folder with the programs and nothing else, which the test may put first
// in PATH: those next to $PIPED_BINARY, which the Makefile has built, else ones that it
// builds.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		built := filepath.Join(filepath.Dir(os.Getenv("PIPED_BINARY")), name)
		if _, err := os.Stat(built); os.Getenv("PIPED_BINARY") == "" || err != nil {
			build(t, dir)
			return dir
		}
		if err := os.Symlink(built, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build builds the programs in place of what the folder has.
func build(t testing.TB, dir string) {
	t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil { // a link: what it leads to stays
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), module+"piped/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // programs that are only driven need no race detector
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
}
