package trigger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestDiscover states which candidates become applications.
func TestDiscover(t *testing.T) {
	files := map[string]string{
		"web/app.pipecd.yaml":   appFile("web", "  labels: {team: a, tier: front}"),
		"db/app.pipecd.yaml":    appFile("db", "  labels: {team: b}"),
		"bad/app.pipecd.yaml":   appFile("bad", "  timeout: nonsense"),
		"other/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: TerraformApp\nspec: {name: other}\n",
		"notes/readme.yaml":     "just: yaml",
	}
	cases := []struct {
		name     string
		discover *config.Discover
		want     []string
	}{
		{"nothing without discover", nil, nil},
		{"an empty discover takes all, broken ones too", &config.Discover{}, []string{"bad", "db", "web"}},
		{"by path", &config.Discover{Paths: patterns(t, "*", "!db")}, []string{"bad", "web"}},
		{"by label; what does not parse has none", &config.Discover{Labels: map[string]string{"team": "a"}}, []string{"web"}},
		{"all labels must match", &config.Discover{Labels: map[string]string{"team": "b", "tier": "front"}}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newEnv(t, func(l *env, _ *Config) { l.config.Discover = c.discover })
			l.push("begin", files)
			if diff := cmp.Diff(c.want, l.registered()); diff != "" {
				t.Errorf("registered (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRegistration: what the file says is on the application, and follows it.
func TestRegistration(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  labels: {team: a}", "  description: the front")})
	app := l.app("web")
	got := deploy.Application{Name: app.Name, Kind: app.Kind, Git: app.Git, Provider: app.Provider, Description: app.Description, Labels: app.Labels}
	want := deploy.Application{
		Name: "web", Kind: deploy.KindKubernetes, Provider: "local", Description: "the front", Labels: map[string]string{"team": "a"},
		Git: deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}
	l.push("rename", map[string]string{"web/app.pipecd.yaml": appFile("shop", "  labels: {team: b}")})
	if app := l.app("web"); app.Name != "shop" || app.Labels["team"] != "b" {
		t.Errorf("after the change the application is %s %v", app.Name, app.Labels)
	}
}

// TestInvalidConfig: the reason why an application cannot be deployed is its sync
// reason, affects no other application, and is removed when it is fixed.
func TestInvalidConfig(t *testing.T) {
	l := newEnv(t)
	broken := appFile("web", "  timeout: nonsense")
	l.push("begin", map[string]string{"web/app.pipecd.yaml": broken, "db/app.pipecd.yaml": appFile("db")})
	l.wantInvalid("web", "web/app.pipecd.yaml:5")
	if got := l.app("web"); got.Name != "web" {
		t.Errorf("an application that never had a name is called %q", got.Name)
	}
	if got := l.deployments("web"); got != nil {
		t.Errorf("a broken application was deployed: %v", got)
	}
	if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("db")); diff != "" {
		t.Errorf("deployments of the other (-want +got):\n%s", diff)
	}
	l.push("fix", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if s := l.app("web").Sync; s.Status != deploy.SyncUnknown || s.Reason != "" {
		t.Errorf("fixed, it is %s because %q", s.Status, s.Reason)
	}
	if diff := cmp.Diff([]string{"fix PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments once fixed (-want +got):\n%s", diff)
	}
}

// TestBrokenCommitIsEvaluatedLater: what changed while the configuration was
// broken is deployed once it is fixed, even by a commit elsewhere.
func TestBrokenCommitIsEvaluatedLater(t *testing.T) {
	l := newEnv(t)
	first := l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/d.yaml": "1"})
	l.push("break", map[string]string{"web/app.pipecd.yaml": appFile("web", "  timeout: nonsense"), "web/d.yaml": "2"})
	l.push("elsewhere", map[string]string{"x": "1"})
	if got := l.app("web").EvaluatedCommit; got != first {
		t.Errorf("evaluated %s while broken, want %s", got, first)
	}
	l.push("fix", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if diff := cmp.Diff([]string{"begin CANCELLED", "fix PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

// TestConfigFileRemoved: the application stays, says so, and is not deployed.
func TestConfigFileRemoved(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/d.yaml": "1"})
	l.remove("web/app.pipecd.yaml")
	l.wantInvalid("web", "bring the file back; until then nothing of the application is deployed")
	l.push("back", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if s := l.app("web").Sync; s.Status != deploy.SyncUnknown {
		t.Errorf("brought back, it is %s because %q", s.Status, s.Reason)
	}
}

// TestDeletedApplicationStaysAway: neither a commit nor a broken configuration
// touches an application that was deleted.
func TestDeletedApplicationStaysAway(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if err := l.store.DeleteApplication(t.Context(), appID("web")); err != nil {
		t.Fatal(err)
	}
	before := l.app("web")
	l.push("change", map[string]string{"web/app.pipecd.yaml": appFile("shop")})
	l.push("break", map[string]string{"web/app.pipecd.yaml": appFile("shop", "  timeout: nonsense")})
	l.remove("web")
	if diff := cmp.Diff(before, l.app("web")); diff != "" {
		t.Errorf("the deleted application changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"begin CANCELLED"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

// TestProviders states which platform provider an application is deployed to.
func TestProviders(t *testing.T) {
	cases := []struct {
		name      string
		providers []string
		wanted    string
		want      string
		problem   string
	}{
		{"the only one", []string{"local"}, "", "local", ""},
		{"the named one", []string{"a", "b"}, "b", "b", ""},
		{"several and none named", []string{"b", "a"}, "", "", "spec.platformProvider is missing, and the agent has several to choose from: a, b"},
		{"an unknown one", []string{"b", "a"}, "c", "", `no platform provider "c" is configured; there are: a, b`},
		{"an unknown one, never the only one instead", []string{"a"}, "c", "", `no platform provider "c" is configured; there are: a`},
		{"none at all", nil, "", "", "the agent has no platform provider: add one to spec.platformProviders"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newEnv(t, func(_ *env, cfg *Config) { cfg.Providers = c.providers })
			spec := "  description: x"
			if c.wanted != "" {
				spec = "  platformProvider: " + c.wanted
			}
			l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", spec)})
			app := l.app("web")
			if app.Provider != c.want || !strings.Contains(app.Sync.Reason, c.problem) || (c.problem == "") != (app.Sync.Status == deploy.SyncUnknown) {
				t.Errorf("provider %q, %s because %q", app.Provider, app.Sync.Status, app.Sync.Reason)
			}
			if made := len(l.all("web")); (made == 1) != (c.want != "") {
				t.Errorf("%d deployments", made)
			}
		})
	}
}

// TestProviderAddedLater: an application that only lacked a provider is deployed
// once the agent has one.
func TestProviderAddedLater(t *testing.T) {
	l := newEnv(t, func(_ *env, c *Config) { c.Providers = nil })
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.restart()
	l.poll()
	if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	if s := l.app("web").Sync.Status; s != deploy.SyncUnknown {
		t.Errorf("the application is %s", s)
	}
}

func patterns(t *testing.T, texts ...string) config.Patterns {
	t.Helper()
	ps := make(config.Patterns, len(texts))
	for i, text := range texts {
		if err := ps[i].UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return ps
}
