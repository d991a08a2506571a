package git

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/git/gittest"
)

// TestMain gives the tests a home of their own: no keys, no known hosts, no ssh
// agent of the developer's.
func TestMain(m *testing.M) {
	if bomb := strings.Fields(os.Getenv(bombVariable)); len(bomb) == 3 {
		if err := bombChild(bomb[0], bomb[1], bomb[2]); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"HOME": home, "SSH_AUTH_SOCK": ""} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(home)
		os.Exit(code)
	}))
}

// open opens a mirror of remote in a directory of the test's own; edit changes
// the configuration.
func open(t *testing.T, remote string, edit ...func(*Config)) *Repo {
	t.Helper()
	c := Config{
		ID: "repo-1", Remote: remote, Branch: gittest.Branch, Dir: t.TempDir(),
		Timeout: 5 * time.Minute, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, f := range edit {
		f(&c)
	}
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// mustSync syncs and checks the head and whether it moved.
func mustSync(t *testing.T, r *Repo, want string, wantMoved bool) {
	t.Helper()
	c, moved, err := r.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Hash != want || moved != wantMoved {
		t.Fatalf("Sync = %s, moved %v; want %s, moved %v", c.Hash, moved, want, wantMoved)
	}
}

func read(t *testing.T, r *Repo, commit, name string) string {
	t.Helper()
	fsys, err := r.At(commit)
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func logTo(buf *bytes.Buffer) func(*Config) {
	return func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(buf, nil)) }
}
