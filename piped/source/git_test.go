package source

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestCommitsOfAGitRepository loads from a real mirror, symbolic links and all.
func TestCommitsOfAGitRepository(t *testing.T) {
	up := gittest.New(t)
	if err := errors.Join(
		up.Symlink("apps/web/shared.yaml", "../../shared/service.yaml"),
		up.Symlink("apps/out/passwd.yaml", "../../../../etc/passwd"),
		up.Symlink("apps/link.pipecd.yaml", "web/app.pipecd.yaml"),
	); err != nil {
		t.Fatal(err)
	}
	first := up.Push(t, "first", map[string]string{
		"apps/web/app.pipecd.yaml": head + "  name: web\n",
		"apps/web/a.yaml":          object("ConfigMap", "a"),
		"shared/service.yaml":      object("Service", "shared"),
		"apps/out/app.pipecd.yaml": head + "  name: out\n",
	})
	second := up.Push(t, "second", map[string]string{"apps/web/b.yaml": object("ConfigMap", "b")})

	repo, err := git.Open(git.Config{ID: "repo", Remote: up.Dir, Branch: gittest.Branch, Dir: t.TempDir(), Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	if _, _, err := repo.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := &Loader{Kinds: kinds, Renderers: renderers(), Tree: func(_, commit string) (fs.FS, error) { return repo.At(commit) }, CacheBytes: 1 << 20}

	for commit, want := range map[string][]string{
		first:  {"ConfigMap a @ apps/web/a.yaml:1", "Service shared @ apps/web/shared.yaml:1"},
		second: {"ConfigMap a @ apps/web/a.yaml:1", "ConfigMap b @ apps/web/b.yaml:1", "Service shared @ apps/web/shared.yaml:1"},
	} {
		s, err := l.Load(t.Context(), at, commit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names(s)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}

	_, err = l.Load(t.Context(), deploy.GitPath{RepoID: "repo", Dir: "apps/out", ConfigFile: "app.pipecd.yaml"}, first)
	wantErr := "read the commit: open apps/out/passwd.yaml: a symbolic link points out of the repository: permission denied"
	if err == nil || err.Error() != wantErr || !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want %s", err, wantErr)
	}

	tree, err := repo.At(first)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Candidates(t.Context(), tree, kinds)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range found {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		got = append(got, c.Path()+" "+c.Config.Name)
	}
	want := []string{"apps/link.pipecd.yaml web", "apps/out/app.pipecd.yaml out", "apps/web/app.pipecd.yaml web"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
