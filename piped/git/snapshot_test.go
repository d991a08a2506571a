package git

import (
	"io/fs"
	"os"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

func TestHeadOfARepositoryIsReadWhereItLies(t *testing.T) {
	remote := gittest.New(t)
	remote.Push(t, "one", map[string]string{"a/b.yaml": "first\n"})
	want := remote.Push(t, "two", map[string]string{"a/b.yaml": "second\n"})
	before := listing(t, remote.Dir)
	s, err := OpenHead(remote.Dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(s, "a/b.yaml")
	if err != nil || string(text) != "second\n" || s.Commit != want {
		t.Errorf("got %q at %s, %v, want the second text at %s", text, s.Commit, err, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if after := listing(t, remote.Dir); after != before {
		t.Errorf("the repository has changed from\n%s\nto\n%s", before, after)
	}
}

func TestOpenHeadErrors(t *testing.T) {
	if _, err := OpenHead(t.TempDir()); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("got %v, want an error of kind not found", err)
	}
	if _, err := OpenHead(gittest.New(t).Dir); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want an error of kind invalid", err)
	}
}

// listing names every file below a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var names string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		names += name + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
