package trigger

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// candidates returns the stored candidates, by directory.
func (l *env) candidates() map[string]deploy.Candidate {
	l.t.Helper()
	cs, err := l.store.Candidates(l.t.Context())
	must(l.t, err)
	out := map[string]deploy.Candidate{}
	for _, c := range cs {
		out[c.Git.Dir] = c
	}
	return out
}

// TestCandidates: what is no application is listed with the reason, and left
// alone.
func TestCandidates(t *testing.T) {
	l := newEnv(t, func(l *env, _ *Config) { l.config.Discover = &config.Discover{Paths: patterns(t, "mine")} })
	l.push("begin", map[string]string{
		"mine/app.pipecd.yaml":   appFile("mine"),
		"theirs/app.pipecd.yaml": appFile("theirs", "  labels: {team: b}"),
		"broken/app.pipecd.yaml": appFile("broken", "  timeout: nonsense"),
		"infra/app.pipecd.yaml":  "apiVersion: pipecd.dev/v1beta1\nkind: TerraformApp\nspec: {name: infra}\n",
		"mine/other.pipecd.yaml": appFile("second of the directory"),
	})
	if diff := cmp.Diff([]string{"mine", "mine"}, l.registered()); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}
	unregistered, unsupported := deploy.CandidateUnregistered, deploy.CandidateUnsupported
	want := map[string]deploy.Candidate{
		"theirs": {Name: "theirs", Kind: "KubernetesApp", Labels: map[string]string{"team": "b"}, State: unregistered,
			Reason: "Nothing selects it: add it as an application, or let discover of repository apps in the agent's configuration select its path or labels"},
		"broken": {Kind: "KubernetesApp", State: unregistered, Reason: "It cannot be used as it is: broken/app.pipecd.yaml:5"},
		"infra":  {Kind: "TerraformApp", State: unsupported, Reason: `infra/app.pipecd.yaml:2: kind: "TerraformApp" is not supported`},
	}
	byReason := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Reason" },
		cmp.Comparer(func(a, b string) bool { return strings.Contains(a, b) || strings.Contains(b, a) }))
	if diff := cmp.Diff(want, l.candidates(), byReason, cmpopts.IgnoreFields(deploy.Candidate{}, "Git")); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	path := deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: "infra", ConfigFile: "app.pipecd.yaml"}
	if diff := cmp.Diff(path, l.candidates()["infra"].Git); diff != "" {
		t.Errorf("where it is (-want +got):\n%s", diff)
	}
	for dir := range want {
		if got := l.deployments(dir); got != nil {
			t.Errorf("%s was deployed: %v", dir, got)
		}
	}
}

// TestCandidatesComeAndGo follows one list through what changes it.
func TestCandidatesComeAndGo(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	want := func(when string, dirs ...string) {
		t.Helper()
		var got []string
		for dir := range l.candidates() {
			got = append(got, dir)
		}
		if diff := cmp.Diff(dirs, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want("all are applications")
	must(t, l.store.DeleteApplication(t.Context(), appID("web")))
	l.poll()
	want("deleted", "web")
	if c := l.candidates()["web"]; c.State != deploy.CandidateDeleted || !strings.Contains(c.Reason, "add it again") {
		t.Errorf("it is listed as %s: %s", c.State, c.Reason)
	}
	must(t, l.store.AddApplication(t.Context(), l.app("web")))
	l.poll()
	want("added again")
	l.restart(func(l *env, _ *Config) { l.config.Discover = nil })
	l.push("another", map[string]string{"db/app.pipecd.yaml": appFile("db")})
	want("not selected", "db")
	l.remove("db")
	want("removed from Git")

	l.push("db", map[string]string{"db/app.pipecd.yaml": appFile("db")})
	l.config.RepoID = "others"
	l.restart(func(_ *env, c *Config) { c.Unwatched = map[string]error{"apps": errors.New("no space left on device")} })
	must(t, l.trigger.forgetCandidates(t.Context()))
	want("still configured", "db")
	l.restart()
	must(t, l.trigger.forgetCandidates(t.Context()))
	want("the repository is not watched any more")
}

// TestWarnings: what a configuration says without effect is logged once, and
// again when it says something else.
func TestWarnings(t *testing.T) {
	var log bytes.Buffer
	l := newEnv(t, func(_ *env, c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	warnings := func() int { return strings.Count(log.String(), "has no effect in part") }
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  input: {kubectlVersion: 1.30.0}")})
	for range 2 {
		l.push("change", map[string]string{"web/d.yaml": string(rune('a' + warnings()))})
		l.poll()
	}
	if warnings() != 1 || !strings.Contains(log.String(), "spec.input.kubectlVersion") {
		t.Errorf("%d warnings:\n%s", warnings(), log.String())
	}
	l.push("fix", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.push("again", map[string]string{"web/app.pipecd.yaml": appFile("web", "  input: {kubectlVersion: 1.30.0}")})
	if warnings() != 2 {
		t.Errorf("%d warnings:\n%s", warnings(), log.String())
	}
}
