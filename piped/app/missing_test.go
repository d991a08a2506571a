package app

import (
	"context"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// openMirror returns repositories whose mirror has the present commits of a remote.
func openMirror(t *testing.T, remote string) *repositories {
	t.Helper()
	text := "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  repositories: [{repoId: apps, remote: \"" + remote + "\", branch: main}]\n"
	cfg, _, err := Kinds().ParsePiped("/piped.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := newRepositories(t.TempDir(), nil, Options{}.withDefaults())
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	planned, err := r.plan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.use(t.Context(), planned)
	if _, _, err := r.opened("apps").Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMissingCommitIsFetchedOnce: a commit that another replica has seen is fetched when it is
// read. One that the remote does not have is asked for once, and one that cannot be asked for is
// not taken for missing.
func TestMissingCommitIsFetchedOnce(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{})
	first := repo.Head()
	r := openMirror(t, server.URL)
	second := repo.Push(t, "second", map[string]string{"README.md": "second"})
	content := func(commit string) (string, error) {
		tree, err := r.Tree("apps", commit)
		if err != nil {
			return "", err
		}
		data, err := fs.ReadFile(tree, "README.md")
		return string(data), err
	}
	server.SetFault(gittest.Fail(http.StatusServiceUnavailable))
	if _, err := content(second); !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), second) {
		t.Errorf("while the remote fails: %v", err)
	}
	server.SetFault(nil)
	if got, err := content(second); err != nil || got != "second" {
		t.Errorf("the second commit: %q, %v", got, err)
	}
	third := repo.Push(t, "third", map[string]string{"web/app.yaml": "third"})
	if paths, err := r.Changed(t.Context(), deploy.GitPath{RepoID: "apps"}, first, third); err != nil || strings.Join(paths, " ") != "README.md web/app.yaml" {
		t.Errorf("changed: %v, %v", paths, err)
	}
	fourth := repo.Push(t, "fourth", map[string]string{"web/app.yaml": "fourth"})
	if commits, err := r.ChangedBy(t.Context(), "apps", third, fourth, "web"); err != nil || len(commits) != 1 || commits[0].Hash != fourth {
		t.Errorf("changed by: %v, %v", commits, err)
	}
	fifth := repo.Push(t, "fifth", map[string]string{"web/app.yaml": "fifth"})
	if object, err := r.CommitObject("apps", fifth); err != nil || !strings.Contains(string(object), "parent "+fourth) {
		t.Errorf("the commit object: %q, %v", object, err)
	}

	const unknown = "00000000000000000000000000000000000000ff"
	before := server.Listings()
	for range 3 {
		if _, err := content(unknown); !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("a commit that does not exist: %v", err)
		}
	}
	if asked := server.Listings() - before; asked != 1 {
		t.Errorf("the remote was asked %d times for a commit that it does not have, want 1", asked)
	}
}

// TestResumedDeploymentsWaitForTheirCommits: the scheduler of a replica whose mirror is behind
// starts when the mirror has the commits of the deployments that go on.
func TestResumedDeploymentsWaitForTheirCommits(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	r := openMirror(t, repo.HTTP(t, gittest.HTTPOptions{}).URL)
	commit := repo.Push(t, "second", map[string]string{"README.md": "second"})
	st := storetest.New(t, time.Now)
	app := deploy.Application{ID: "web", Name: "web", Kind: deploy.KindKubernetes, Provider: "local", Git: deploy.GitPath{RepoID: "apps", Dir: "web"}}
	if _, err := st.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	_, err := st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: "d", ApplicationID: "web", ApplicationName: "web", Git: app.Git, Provider: "local", Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Commit: deploy.Commit{Hash: commit}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.UpdateDeployment(t.Context(), "d", func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, time.Now()) }); err != nil {
		t.Fatal(err)
	}
	ran := false
	run := r.fetched(st, func(context.Context) error {
		ran = true
		_, err := r.opened("apps").At(commit)
		return err
	})
	if err := run(t.Context()); err != nil || !ran {
		t.Errorf("the scheduler was started %t: %v", ran, err)
	}
}
