package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
)

// listing returns what is below dir, links by their targets.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		line := fmt.Sprintf("%s %s", info.Mode(), rel)
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			line = rel + " -> " + target
		case entry.Type().IsRegular():
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			line += " " + string(data)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func link(target string) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeSymlink | 0o777, Data: []byte(target)}
}

func TestMaterialise(t *testing.T) {
	fsys := files("app/run.sh", "#!/bin/sh", "app/deep/a.yaml", "a", "top.txt", "top")
	fsys["app/run.sh"].Mode = 0o755
	fsys["app/empty"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	fsys["app/pipe"] = &fstest.MapFile{Mode: fs.ModeNamedPipe}
	fsys["app/inside"] = link("../top.txt")
	fsys["app/directory"] = link("deep")
	fsys["app/missing"] = link("made-later.txt")
	fsys["app/absolute"] = link("/etc/passwd")
	fsys["app/outside"] = link("../../etc/passwd")

	dir := filepath.Join(t.TempDir(), "new", "tree")
	if err := Materialise(t.Context(), fsys, dir); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"drwxr-xr-x app",
		"drwxr-xr-x app/deep",
		"-rw-r--r-- app/deep/a.yaml a",
		"app/directory -> deep",
		"drwxr-xr-x app/empty",
		"app/inside -> ../top.txt",
		"app/missing -> made-later.txt",
		"-rwxr-xr-x app/run.sh #!/bin/sh",
		"-rw-r--r-- top.txt top",
	}
	if diff := cmp.Diff(want, listing(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v, want mode 0700", info.Mode(), err)
	}
}

// TestMaterialiseACommit: a link whose text stays inside while its way, over
// another link, does not, is found out by following it.
func TestMaterialiseACommit(t *testing.T) {
	up := gittest.New(t)
	if err := errors.Join(
		up.Symlink("a/b/up", "../.."),
		up.Symlink("a/b/sly", "up/../passwd"),
		up.Symlink("a/b/fine", "up/top.txt"),
	); err != nil {
		t.Fatal(err)
	}
	hash := up.Push(t, "first", map[string]string{"top.txt": "top"})
	repo, err := git.Open(git.Config{ID: "repo", Remote: up.Dir, Branch: gittest.Branch, Dir: t.TempDir(), Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	if _, _, err := repo.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	tree, err := repo.At(hash)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Materialise(t.Context(), tree, dir); err != nil {
		t.Fatal(err)
	}
	want := []string{"drwxr-xr-x a", "drwxr-xr-x a/b", "a/b/fine -> up/top.txt", "a/b/up -> ../..", "-rw-r--r-- top.txt top"}
	if diff := cmp.Diff(want, listing(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMaterialiseRefusals(t *testing.T) {
	fsys := files("a/one", "12345", "a/two", "67890")
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(errors.New("enough"))
	occupied := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(occupied, "a")); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		ctx    context.Context
		fsys   fs.FS
		dir    string
		limits treeLimits
		kind   deploy.Kind
		want   string
	}{
		{"too many entries", t.Context(), fsys, t.TempDir(), treeLimits{2, 100}, deploy.Invalid,
			"write the commit's files: a/two: the commit holds more than 2 files and directories"},
		{"too many bytes", t.Context(), fsys, t.TempDir(), treeLimits{10, 9}, deploy.Invalid,
			"write the commit's files: a/two: the commit holds more than 9 bytes"},
		{"cancelled", cancelled, fsys, t.TempDir(), treeLimits{10, 100}, deploy.Internal, "write the commit's files: enough"},
		{"a tree that cannot be read", t.Context(), broken{files("apps/x", "")}, t.TempDir(), treeLimits{10, 100}, deploy.Internal,
			"write the commit's files: object is missing"},
		{"a link in the way", t.Context(), fsys, occupied, treeLimits{10, 100}, deploy.Internal, "file exists"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := materialise(c.ctx, c.fsys, c.dir, c.limits)
			if err == nil || !strings.Contains(err.Error(), c.want) || deploy.KindOf(err) != c.kind {
				t.Errorf("got %v (%s), want %s (%s)", err, deploy.KindOf(err), c.want, c.kind)
			}
		})
	}
	if err := materialise(t.Context(), fsys, t.TempDir(), treeLimits{3, 10}); err != nil {
		t.Errorf("a tree of just the limits: %v", err)
	}
}
