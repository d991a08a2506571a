package git

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

func TestChanged(t *testing.T) {
	base := map[string]string{
		"README.md": "readme", "a/app.yaml": "a", "a/deep/er/x": "x", "b/app.yaml": "b", "b.yaml": "next to b",
		"größe/日本 語.yaml": "ü", "run.sh": "#!", "becomes-dir": "f", "becomes-file/x": "x",
	}
	cases := map[string]struct {
		change func(*gittest.Repo) error
		want   []string
	}{
		"nothing":      {func(*gittest.Repo) error { return nil }, nil},
		"modified":     {write("a/deep/er/x", "y"), []string{"a/deep/er/x"}},
		"added":        {write("c/new", "n"), []string{"c/new"}},
		"deleted":      {remove("b"), []string{"b/app.yaml"}},
		"non-ascii":    {write("größe/日本 語.yaml", "ö"), []string{"größe/日本 語.yaml"}},
		"mode":         {func(up *gittest.Repo) error { return up.SetExecutable("run.sh", true) }, []string{"run.sh"}},
		"to a symlink": {func(up *gittest.Repo) error { return up.Symlink("run.sh", "README.md") }, []string{"run.sh"}},
		"renamed out and in": {func(up *gittest.Repo) error {
			return errors.Join(remove("a/app.yaml")(up), write("b/moved.yaml", "a")(up))
		}, []string{"a/app.yaml", "b/moved.yaml"}},
		"directory renamed": {func(up *gittest.Repo) error {
			return errors.Join(remove("a")(up), write("z/app.yaml", "a")(up), write("z/deep/er/x", "x")(up))
		}, []string{"a/app.yaml", "a/deep/er/x", "z/app.yaml", "z/deep/er/x"}},
		"file becomes directory": {func(up *gittest.Repo) error {
			return errors.Join(remove("becomes-dir")(up), write("becomes-dir/y", "y")(up))
		}, []string{"becomes-dir", "becomes-dir/y"}},
		"directory becomes file": {func(up *gittest.Repo) error {
			return errors.Join(remove("becomes-file")(up), write("becomes-file", "f")(up))
		}, []string{"becomes-file", "becomes-file/x"}},
		"submodule": {func(up *gittest.Repo) error {
			up.Submodule("module", strings.Repeat("1", 40))
			return nil
		}, []string{"module"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := gittest.New(t)
			from := up.Push(t, "base", base)
			if err := c.change(up); err != nil {
				t.Fatal(err)
			}
			up.Push(t, "between", map[string]string{"README.md": "other"})
			to := up.Push(t, "change", map[string]string{"README.md": "readme"})
			r := open(t, up.Dir)
			mustSync(t, r, to, true)
			for _, pair := range [][2]string{{from, to}, {to, from}} {
				got, err := r.Changed(t.Context(), pair[0], pair[1])
				if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
					t.Errorf("Changed: %v (-want +got):\n%s", err, diff)
				}
			}
		})
	}
}

func write(name, content string) func(*gittest.Repo) error {
	return func(up *gittest.Repo) error { return up.Write(map[string]string{name: content}) }
}

func remove(name string) func(*gittest.Repo) error {
	return func(up *gittest.Repo) error { return up.Remove(name) }
}

func TestChangedWithoutOneOfTheCommits(t *testing.T) {
	up := gittest.New(t)
	first := up.Push(t, "first", map[string]string{"a": "1"})
	r := open(t, up.Dir)
	mustSync(t, r, first, true)
	missing := strings.Repeat("a", 40)
	for _, pair := range [][2]string{{first, missing}, {missing, first}, {"", first}} {
		if _, err := r.Changed(t.Context(), pair[0], pair[1]); !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("Changed(%s, %s) = %v", pair[0], pair[1], err)
		}
	}
	second := up.Push(t, "second", map[string]string{"a": "2"})
	mustSync(t, r, second, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Changed(ctx, first, second); !errors.Is(err, context.Canceled) {
		t.Errorf("Changed with a cancelled context = %v", err)
	}
}

func TestTreeHashSaysWhetherADirectoryChanged(t *testing.T) {
	up := gittest.New(t)
	first := up.Push(t, "first", map[string]string{"apps/a/x": "1", "apps/b/x": "1", "apps/c/x": "2", "file": "f"})
	second := up.Push(t, "second", map[string]string{"apps/b/x": "2"})
	r := open(t, up.Dir)
	mustSync(t, r, second, true)
	hash := func(commit, dir string) string {
		t.Helper()
		h, err := r.TreeHash(commit, dir)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if a := hash(first, "apps/a"); a == "" || a != hash(second, "apps/a") || a != hash(first, "./apps/a/") || a != hash(first, "apps/b") {
		t.Errorf("equal directories have different hashes")
	}
	if hash(second, "apps/b") != hash(second, "apps/c") || hash(first, "apps/b") == hash(second, "apps/b") || hash(first, ".") == hash(second, "") {
		t.Errorf("changed directories have equal hashes")
	}
	if hash(first, "file") == "" {
		t.Errorf("a file has no hash")
	}
	for _, dir := range []string{"apps/d", "nothing/at/all", "file/x"} {
		if got := hash(first, dir); got != "" {
			t.Errorf("TreeHash(%s) = %s", dir, got)
		}
	}
	if _, err := r.TreeHash(strings.Repeat("a", 40), "."); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("TreeHash of an unknown commit: %v", err)
	}
}
