package trigger

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// nameless is the configuration of an application without spec.name.
const nameless = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\n"

// TestApplicationWithoutName: it is called as its directory, or as it was added, and so
// are its deployments.
func TestApplicationWithoutName(t *testing.T) {
	l := newEnv(t, func(l *env, _ *Config) { l.config.Discover = &config.Discover{Paths: patterns(t, "shop")} })
	l.push("begin", map[string]string{"shop/web/app.pipecd.yaml": nameless, "db/app.pipecd.yaml": nameless})
	must(t, l.store.AddApplication(t.Context(), deploy.Application{
		ID: appID("db"), Name: "orders", Kind: deploy.KindKubernetes,
		Git:          deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: "db", ConfigFile: "app.pipecd.yaml"},
		Sync:         deploy.SyncState{Status: deploy.SyncUnknown},
		Registration: deploy.Registration{By: "ann", Name: "orders"},
	}))
	l.poll()
	for dir, want := range map[string]string{"shop/web": "web", "db": "orders"} {
		all := l.all(dir)
		if app := l.app(dir); app.Name != want || len(all) != 1 || all[0].ApplicationName != want {
			t.Errorf("%s is called %q, its deployments %+v, want %s", dir, app.Name, all, want)
		}
	}
	l.push("named", map[string]string{"db/app.pipecd.yaml": appFile("database")})
	l.push("nameless again", map[string]string{"db/app.pipecd.yaml": nameless})
	if app := l.app("db"); app.Name != "orders" {
		t.Errorf("without the name of its file it is called %q", app.Name)
	}
}

// TestSecondProviderMovesNothing: an application that names no provider stays where it
// is when the agent gets another one, and a new one has to name its provider.
func TestSecondProviderMovesNothing(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.end("web", deploy.Success)
	l.restart(func(_ *env, c *Config) { c.Providers = []string{"another", "local"} })
	l.poll()
	l.push("change", map[string]string{"web/a.yaml": "1", "new/app.pipecd.yaml": appFile("new")})
	all := l.all("web")
	if app := l.app("web"); app.Sync.Status == deploy.SyncInvalidConfig || len(all) != 2 || all[1].Provider != "local" {
		t.Errorf("it is %+v with deployments %+v", app, all)
	}
	l.wantInvalid("new", "spec.platformProvider is missing")
}

// TestUnreadKeysAreNoticed: what of a configuration is not read is stated on its
// application, which is deployed.
func TestUnreadKeysAreNoticed(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  owner: ann")})
	want := "Not all of the configuration is read: web/app.pipecd.yaml:5: spec.owner: unknown field, which is not read"
	if got := l.app("web").Notice; got != want {
		t.Errorf("the application says %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	l.push("read", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if got := l.app("web").Notice; got != "" {
		t.Errorf("without the key the application says %q", got)
	}
}

// TestUnreadKeysAreNoticedAfterAHold: the notice of a silent cluster goes first.
func TestUnreadKeysAreNoticedAfterAHold(t *testing.T) {
	silent := true
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(string, string) ([]string, error) {
			if silent {
				return nil, deploy.Errorf(deploy.Unavailable, "no answer")
			}
			return nil, nil
		})
	})
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  owner: ann")})
	if got := l.app("web").Notice; len(got) < len(waiting) || got[:len(waiting)] != waiting {
		t.Errorf("while it is held the application says %q", got)
	}
	silent = false
	l.pass(maxSilence)
	l.poll()
	if got := l.app("web").Notice; len(got) < len(unread) || got[:len(unread)] != unread {
		t.Errorf("afterwards the application says %q", got)
	}
}

// TestOldestConfigurationName: .pipe.yaml is an application's configuration, but
// app.pipecd.yaml in the same directory takes precedence.
func TestOldestConfigurationName(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{
		"old/.pipe.yaml":       nameless,
		"both/.pipe.yaml":      nameless,
		"both/app.pipecd.yaml": nameless,
	})
	if diff := cmp.Diff([]string{"both", "old"}, l.registered()); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}
	if app := l.app("both"); app.Git.ConfigFile != "app.pipecd.yaml" {
		t.Errorf("of both it takes %s", app.Git.ConfigFile)
	}
	if c := l.candidates()["both"]; c.Git.ConfigFile != ".pipe.yaml" || c.State != deploy.CandidateUnregistered {
		t.Errorf("the other is %+v", c)
	}
}

// TestMoveToTheOldestNameWhileTheAgentIsDown: the first pass after a start finds an
// application that a commit moved to a .pipe.yaml. It is the same application there, unless
// an app.pipecd.yaml is next to it.
func TestMoveToTheOldestNameWhileTheAgentIsDown(t *testing.T) {
	for name, more := range map[string]map[string]string{"alone": {}, "replaced": {"store/app.pipecd.yaml": appFile("other", "")}} {
		t.Run(name, func(t *testing.T) {
			l := newMoveEnv(t)
			must(t, l.upstream.Remove("web/app.pipecd.yaml", "web/d.yaml"))
			files := map[string]string{"store/.pipe.yaml": appFile("web", moving), "store/d.yaml": "1"}
			maps.Copy(files, more)
			l.upstream.Push(t, "move", files)
			l.restart()
			l.poll()
			app, err := l.store.Application(t.Context(), appID("web"))
			must(t, err)
			if moved := app.Git.Dir == "store"; moved != (name == "alone") {
				t.Errorf("the application is at %s", app.Git.ConfigPath())
			}
		})
	}
}
