package undeployed

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
)

// env is a repository with an application, and a Finder of its commits.
type env struct {
	*Finder
	t    *testing.T
	repo *gittest.Repo
	web  deploy.Application
}

func newEnv(t *testing.T) *env {
	t.Helper()
	repo := gittest.New(t)
	repo.Push(t, "begin", map[string]string{"README.md": "applications of the test"})
	mirror, err := git.Open(git.Config{ID: "apps", Remote: repo.Dir, Branch: "main", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mirror.Close(); err != nil {
			t.Error(err)
		}
	})
	mirrors := func(_ context.Context, repoID string, _ ...string) (*git.Repo, error) {
		if repoID != "apps" {
			return nil, deploy.Errorf(deploy.Invalid, "repository %q is not configured", repoID)
		}
		return mirror, nil
	}
	tree := func(_, commit string) (fs.FS, error) { return mirror.At(commit) }
	return &env{
		t: t, repo: repo, Finder: New(mirrors, &source.Loader{
			Kinds: config.Kinds{config.Kubernetes()}, Renderers: map[string]render.Renderer{deploy.KindKubernetes: kubernetes.New(kubernetes.Config{})}, Tree: tree, CacheBytes: 1 << 20,
		}),
		web: deploy.Application{ID: "web", Name: "web", Git: deploy.GitPath{RepoID: "apps", Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"}},
	}
}

// push commits files and syncs the mirror.
func (e *env) push(message string, files map[string]string) string {
	e.t.Helper()
	hash := e.repo.Push(e.t, message, files)
	e.follow()
	return hash
}

func (e *env) follow() {
	e.t.Helper()
	mirror, err := e.mirror(e.t.Context(), "apps")
	if err != nil {
		e.t.Fatal(err)
	}
	if _, _, err := mirror.Sync(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
}

// want fails unless these commits are undeployed; none means that the manifests are equal.
func (e *env) want(what, deployed, head string, want ...string) {
	e.t.Helper()
	got, differs, err := e.Undeployed(e.t.Context(), e.web, deployed, head)
	if err != nil || differs != (len(want) > 0) {
		e.t.Errorf("%s: differs %t, %v", what, differs, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// webFile returns the application's configuration with further lines, webMap its manifest.
func webFile(more string) string {
	return "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n" + more
}

func webMap(text string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {text: " + text + "}}\n"
}

func TestUndeployed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one"), "other/x": "1"})
	e.want("what is deployed", first, first)
	other := e.push("another application", map[string]string{"other/x": "2"})
	e.want("a commit that does not touch it", first, other)
	second := e.push("two", map[string]string{"web/map.yaml": webMap("two")})
	between := e.push("the other again", map[string]string{"other/x": "3"})
	third := e.push("three", map[string]string{"web/map.yaml": webMap("three")})
	e.want("two commits with others between", first, third, third, second)
	e.want("one is deployed", second, third, third)
	e.want("one is deployed, at a later commit", between, third, third)
	comment := e.push("a comment", map[string]string{"web/map.yaml": "# three\n" + webMap("three")})
	e.want("what is declared stays the same", third, comment)
	back := e.push("back", map[string]string{"web/map.yaml": webMap("one")})
	e.want("back to what is deployed", first, back)
}

func TestUndeployedCountsWhatTheTriggerCounts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.push("web", map[string]string{
		"web/app.pipecd.yaml":     webFile("  trigger: {onCommit: {paths: [base], ignores: [web/*.md, web/skipped.yaml]}}\n"),
		"web/kustomization.yaml":  "resources: [../base]\n",
		"base/kustomization.yaml": "resources: [map.yaml]\n", "base/map.yaml": webMap("one"),
	})
	base := e.push("base", map[string]string{"base/map.yaml": webMap("two")})
	readme := e.push("readme", map[string]string{"web/README.md": "hello"})
	e.want("a file of another directory", first, readme, base)
	ignored := e.push("an ignored file", map[string]string{"web/kustomization.yaml": "resources: [../base, skipped.yaml]\n", "web/skipped.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: s}}\n"})
	more := e.push("only an ignored file", map[string]string{"web/skipped.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: s}, data: {a: b}}\n"})
	e.want("an ignored file that is read", ignored, more)
	e.want("the ignored one does not count", first, more, ignored, base)
}

func TestUndeployedReturnsTheNewestFifty(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("begin")})
	var want []string
	for i := range 60 {
		want = append([]string{e.repo.Push(t, fmt.Sprint(i), map[string]string{"web/map.yaml": webMap(fmt.Sprintf("%q", fmt.Sprint(i)))})}, want...)
	}
	e.follow()
	e.want("sixty commits", first, want[0], want[:50]...)
}

func TestUndeployedAfterTheBranchWasRewritten(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	begin := e.repo.Head()
	deployed := e.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one")})
	if err := e.repo.Reset(begin); err != nil {
		t.Fatal(err)
	}
	same := e.push("the same, anew", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one"), "x": "y"})
	e.want("the same is declared", deployed, same)
	head := e.push("something else", map[string]string{"web/map.yaml": webMap("two")})
	commits, differs, err := e.Undeployed(t.Context(), e.web, deployed, head)
	if err != nil || !differs || len(commits) != 0 {
		t.Errorf("something else is declared: %v, %t, %v", commits, differs, err)
	}
}

func TestUndeployedErrors(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	good := e.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one")})
	broken := e.push("a broken object", map[string]string{"web/map.yaml": "{apiVersion: v1, kind: ConfigMap}\n"})
	badConfig := e.push("a broken configuration", map[string]string{"web/app.pipecd.yaml": webFile("  timeout: nonsense\n"), "web/map.yaml": webMap("two")})
	if err := e.repo.Remove("web"); err != nil {
		t.Fatal(err)
	}
	gone := e.push("gone", map[string]string{"x": "y"})
	unknown := strings.Repeat("0123456789", 4)
	for name, c := range map[string]struct {
		deployed, head string
		kind           deploy.Kind
		want           string
	}{
		"an object of the head is broken":         {good, broken, deploy.Invalid, "web/map.yaml"},
		"the head's configuration is broken":      {good, badConfig, deploy.Invalid, "nonsense"},
		"the application is gone from Git":        {good, gone, deploy.Invalid, "put it back, or delete the application"},
		"what is deployed is gone":                {unknown, good, deploy.Invalid, "sync the application"},
		"what is deployed cannot be rendered":     {broken, good, deploy.Invalid, "sync the application"},
		"the head was not read since the restart": {good, unknown, deploy.Unavailable, "this is repeated"},
	} {
		commits, differs, err := e.Undeployed(t.Context(), e.web, c.deployed, c.head)
		if len(commits) != 0 || differs || !deploy.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %t, %v", name, commits, differs, err)
		}
	}
	e.web.Git.RepoID = "elsewhere"
	if _, _, err := e.Undeployed(t.Context(), e.web, good, broken); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("of a repository that is not configured: %v", err)
	}
}

// TestUndeployedComparesOnce: applications share the comparison of two commits.
func TestUndeployedComparesOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	files := map[string]string{"base/map.yaml": webMap("one")}
	for i := range 30 {
		files[fmt.Sprintf("app-%d/app.pipecd.yaml", i)] = webFile("  trigger: {onCommit: {paths: [elsewhere]}}\n")
	}
	first := e.push("thirty", files)
	head := e.push("base", map[string]string{"base/map.yaml": webMap("two")})
	for i := range 30 {
		app := e.web
		app.Git.Dir = fmt.Sprintf("app-%d", i)
		if _, differs, err := e.Undeployed(t.Context(), app, first, head); err != nil || differs {
			t.Fatalf("%s: %t, %v", app.Git.Dir, differs, err)
		}
	}
	if len(e.cache) != 1 || e.cached != 2 {
		t.Errorf("%d comparisons of %d paths are remembered", len(e.cache), e.cached)
	}
	for i := range maxCached {
		e.put(span{"apps", fmt.Sprint(i), ""}, &between{}, 1)
	}
	if len(e.cache) > maxCached/2 || e.cached > maxCached {
		t.Errorf("%d comparisons are remembered, %d paths", len(e.cache), e.cached)
	}
}
