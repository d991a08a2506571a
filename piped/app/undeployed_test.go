package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/source"
)

// undeployedLab is a repository, and what tells which of its commits are not deployed.
type undeployedLab struct {
	t    *testing.T
	repo *gittest.Repo
	*undeployed
	web deploy.Application
}

func newUndeployedLab(t *testing.T) *undeployedLab {
	t.Helper()
	repo := newRepo(t)
	text := fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec: {repositories: [{repoId: apps, remote: %q, branch: main}]}\n", repo.Dir)
	cfg, _, err := config.ParsePiped("/piped.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := newRepositories(t.TempDir(), Options{}.withDefaults())
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
	return &undeployedLab{
		t: t, repo: repo, undeployed: newUndeployed(r, &source.Loader{Tree: r.Tree, CacheBytes: 1 << 20}),
		web: deploy.Application{ID: appID("web"), Name: "web", Git: deploy.GitPath{RepoID: "apps", Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"}},
	}
}

// push commits files, and has the agent's mirror follow.
func (l *undeployedLab) push(message string, files map[string]string) string {
	l.t.Helper()
	hash := l.repo.Push(l.t, message, files)
	l.follow()
	return hash
}

func (l *undeployedLab) follow() {
	l.t.Helper()
	mirror, err := l.repositories.mirror("apps")
	if err != nil {
		l.t.Fatal(err)
	}
	if _, _, err := mirror.Sync(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// want fails unless these commits are said not to be deployed; none means that what
// is declared is the same.
func (l *undeployedLab) want(what, deployed, head string, want ...string) {
	l.t.Helper()
	got, differs, err := l.Undeployed(l.t.Context(), l.web, deployed, head)
	if err != nil || differs != (len(want) > 0) {
		l.t.Errorf("%s: differs %t, %v", what, differs, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// webFile is the application's configuration with further lines, and webMap what it
// declares.
func webFile(more string) string {
	return "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n" + more
}

func webMap(text string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {text: " + text + "}}\n"
}

func TestUndeployed(t *testing.T) {
	t.Parallel()
	l := newUndeployedLab(t)
	first := l.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one"), "other/x": "1"})
	l.want("what is deployed", first, first)
	other := l.push("another application", map[string]string{"other/x": "2"})
	l.want("a commit that does not touch it", first, other)
	second := l.push("two", map[string]string{"web/map.yaml": webMap("two")})
	between := l.push("the other again", map[string]string{"other/x": "3"})
	third := l.push("three", map[string]string{"web/map.yaml": webMap("three")})
	l.want("two commits with others between", first, third, third, second)
	l.want("one is deployed", second, third, third)
	l.want("one is deployed, at a later commit", between, third, third)
	comment := l.push("a comment", map[string]string{"web/map.yaml": "# three\n" + webMap("three")})
	l.want("what is declared stays the same", third, comment)
	back := l.push("back", map[string]string{"web/map.yaml": webMap("one")})
	l.want("back to what is deployed", first, back)
}

func TestUndeployedCountsWhatTheTriggerCounts(t *testing.T) {
	t.Parallel()
	l := newUndeployedLab(t)
	first := l.push("web", map[string]string{
		"web/app.pipecd.yaml":     webFile("  trigger: {onCommit: {paths: [base], ignores: [web/*.md, web/skipped.yaml]}}\n"),
		"web/kustomization.yaml":  "resources: [../base]\n",
		"base/kustomization.yaml": "resources: [map.yaml]\n", "base/map.yaml": webMap("one"),
	})
	base := l.push("base", map[string]string{"base/map.yaml": webMap("two")})
	readme := l.push("readme", map[string]string{"web/README.md": "hello"})
	l.want("a file of another directory", first, readme, base)
	ignored := l.push("an ignored file", map[string]string{"web/kustomization.yaml": "resources: [../base, skipped.yaml]\n", "web/skipped.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: s}}\n"})
	more := l.push("only an ignored file", map[string]string{"web/skipped.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: s}, data: {a: b}}\n"})
	l.want("an ignored file that is read", ignored, more)
	l.want("the ignored one does not count", first, more, ignored, base)
}

func TestUndeployedTellsTheNewestFifty(t *testing.T) {
	t.Parallel()
	l := newUndeployedLab(t)
	first := l.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("begin")})
	var want []string
	for i := range 60 {
		want = append([]string{l.repo.Push(t, fmt.Sprint(i), map[string]string{"web/map.yaml": webMap(fmt.Sprintf("%q", fmt.Sprint(i)))})}, want...)
	}
	l.follow()
	l.want("sixty commits", first, want[0], want[:50]...)
}

func TestUndeployedAfterTheBranchWasRewritten(t *testing.T) {
	t.Parallel()
	l := newUndeployedLab(t)
	begin := l.repo.Head()
	deployed := l.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one")})
	if err := l.repo.Reset(begin); err != nil {
		t.Fatal(err)
	}
	same := l.push("the same, anew", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one"), "x": "y"})
	l.want("the same is declared", deployed, same)
	head := l.push("something else", map[string]string{"web/map.yaml": webMap("two")})
	commits, differs, err := l.Undeployed(t.Context(), l.web, deployed, head)
	if err != nil || !differs || len(commits) != 0 {
		t.Errorf("something else is declared: %v, %t, %v", commits, differs, err)
	}
}

func TestUndeployedCannotBeTold(t *testing.T) {
	t.Parallel()
	l := newUndeployedLab(t)
	good := l.push("web", map[string]string{"web/app.pipecd.yaml": webFile(""), "web/map.yaml": webMap("one")})
	broken := l.push("a broken object", map[string]string{"web/map.yaml": "{apiVersion: v1, kind: ConfigMap}\n"})
	badConfig := l.push("a broken configuration", map[string]string{"web/app.pipecd.yaml": webFile("  timeout: nonsense\n"), "web/map.yaml": webMap("two")})
	if err := l.repo.Remove("web"); err != nil {
		t.Fatal(err)
	}
	gone := l.push("gone", map[string]string{"x": "y"})
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
		"the head was not read since the restart": {good, unknown, deploy.Unavailable, "looked at again"},
	} {
		commits, differs, err := l.Undeployed(t.Context(), l.web, c.deployed, c.head)
		if len(commits) != 0 || differs || !deploy.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %t, %v", name, commits, differs, err)
		}
	}
	l.web.Git.RepoID = "elsewhere"
	if _, _, err := l.Undeployed(t.Context(), l.web, good, broken); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("of a repository that is not configured: %v", err)
	}
}

// TestUndeployedComparesOnce: applications that ask about the same commits share the
// comparison.
func TestUndeployedComparesOnce(t *testing.T) {
	t.Parallel()
	l := newUndeployedLab(t)
	files := map[string]string{"base/map.yaml": webMap("one")}
	for i := range 30 {
		files[fmt.Sprintf("app-%d/app.pipecd.yaml", i)] = webFile("  trigger: {onCommit: {paths: [elsewhere]}}\n")
	}
	first := l.push("thirty", files)
	head := l.push("base", map[string]string{"base/map.yaml": webMap("two")})
	for i := range 30 {
		app := l.web
		app.Git.Dir = fmt.Sprintf("app-%d", i)
		if _, differs, err := l.Undeployed(t.Context(), app, first, head); err != nil || differs {
			t.Fatalf("%s: %t, %v", app.Git.Dir, differs, err)
		}
	}
	if len(l.known) != 1 || l.held != 2 {
		t.Errorf("%d comparisons of %d paths are remembered", len(l.known), l.held)
	}
	for i := range maxHeld {
		l.keep(span{"apps", fmt.Sprint(i), ""}, &between{}, 1)
	}
	if len(l.known) > maxHeld/2 || l.held > maxHeld {
		t.Errorf("%d comparisons are remembered, %d paths", len(l.known), l.held)
	}
}
