package trigger

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// add registers the application in a directory by request.
func (l *env) add(dir, provider string) {
	l.t.Helper()
	must(l.t, l.store.AddApplication(l.t.Context(), deploy.Application{
		ID: appID(dir), Name: "as requested", Kind: deploy.KindKubernetes, Labels: map[string]string{"from": "request"},
		Git:          deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: dir, ConfigFile: "app.pipecd.yaml"},
		Sync:         deploy.SyncState{Status: deploy.SyncUnknown},
		Registration: deploy.Registration{By: "ann", Provider: provider},
	}))
}

// TestAddedApplication: one that the configuration does not select is deployed
// once it is added, and is what its file says from then on.
func TestAddedApplication(t *testing.T) {
	l := newEnv(t, func(l *env, _ *Config) { l.config.Discover = nil })
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  labels: {team: a}")})
	if _, ok := l.candidates()["web"]; !ok {
		t.Fatal("it is no candidate at first")
	}
	l.add("web", "")
	l.poll()
	if _, ok := l.candidates()["web"]; ok {
		t.Error("it is a candidate still")
	}
	if app := l.app("web"); app.Name != "web" || !cmp.Equal(app.Labels, map[string]string{"team": "a"}) || app.Registration.By != "ann" {
		t.Errorf("it is %+v", app)
	}
	if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	must(t, l.store.DeleteApplication(t.Context(), appID("web")))
	l.push("meanwhile", map[string]string{"x": "1"})
	l.add("web", "")
	l.poll()
	if diff := cmp.Diff([]string{"begin CANCELLED", "meanwhile PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("added again, deployments (-want +got):\n%s", diff)
	}
}

// TestKeptID: an application that was added with an ID of its own has that one, is
// the only one of its place, and stays so when it was deleted.
func TestKeptID(t *testing.T) {
	l := newEnv(t)
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	const id = "0b4e5f6a-1111-4222-8333-444455556666"
	add := func() {
		must(t, l.store.AddApplication(t.Context(), deploy.Application{
			ID: id, Name: "as requested", Kind: deploy.KindKubernetes, Sync: deploy.SyncState{Status: deploy.SyncUnknown}, Registration: deploy.Registration{By: "ann"},
			Git: deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"},
		}))
	}
	ids := func() (out []string) {
		apps, err := l.trigger.watchers["apps"].applications(t.Context())
		must(t, err)
		for id := range apps {
			out = append(out, id)
		}
		return out
	}
	add()
	l.poll()
	app, err := l.store.Application(t.Context(), id)
	if must(t, err); app.Name != "web" || app.LastTriggered == nil {
		t.Errorf("it was not read from its file, or not deployed: %+v", app)
	}
	command, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: l.newID(), Type: deploy.CommandSync, ApplicationID: id, Commander: "ann"})
	must(t, err)
	l.push("change", map[string]string{"web/d.yaml": "2"})
	if c := l.command(command.ID); c.Status != deploy.CommandSucceeded {
		t.Errorf("the sync is %s: %v", c.Status, c.Metadata)
	}
	must(t, l.store.DeleteApplication(t.Context(), id))
	l.push("again", map[string]string{"web/d.yaml": "3"})
	if diff := cmp.Diff([]string{id}, ids()); diff != "" {
		t.Errorf("applications (-want +got):\n%s", diff)
	}
	if c := l.candidates()["web"]; c.State != deploy.CandidateDeleted {
		t.Errorf("the candidate is %+v", c)
	}
}

// TestAddedBeforeItsFile: until the file is there the application says what is
// missing and keeps what the request said; then it is deployed.
func TestAddedBeforeItsFile(t *testing.T) {
	l := newEnv(t, func(l *env, _ *Config) { l.config.Discover = nil })
	l.push("begin", map[string]string{"x": "1"})
	l.add("web", "")
	l.poll()
	l.wantInvalid("web", "web/app.pipecd.yaml does not exist at commit")
	if app := l.app("web"); app.Name != "as requested" || app.Labels["from"] != "request" {
		t.Errorf("it is %+v", app)
	}
	l.push("file", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if diff := cmp.Diff([]string{"file PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	l.remove("web/app.pipecd.yaml")
	l.wantInvalid("web", "no longer exists at commit")
}

// TestRegisteredProvider: the provider of the request counts where the file names
// none, also when it is changed later.
func TestRegisteredProvider(t *testing.T) {
	l := newEnv(t, func(l *env, c *Config) { l.config.Discover, c.Providers = nil, []string{"a", "b"} })
	l.push("begin", map[string]string{
		"web/app.pipecd.yaml": appFile("web"),
		"db/app.pipecd.yaml":  appFile("db", "  platformProvider: b"),
	})
	l.add("web", "a")
	l.add("db", "a")
	l.poll()
	for dir, want := range map[string]string{"web": "a", "db": "b"} {
		if got := l.app(dir).Provider; got != want || l.all(dir)[0].Provider != want {
			t.Errorf("%s is deployed to %q, its deployment to %q, want %q", dir, got, l.all(dir)[0].Provider, want)
		}
	}
	must(t, l.store.SetRegisteredProvider(t.Context(), appID("web"), "b"))
	l.poll()
	if got := l.app("web").Provider; got != "b" {
		t.Errorf("after the change it is deployed to %q", got)
	}
	must(t, l.store.SetRegisteredProvider(t.Context(), appID("web"), "c"))
	l.poll()
	l.wantInvalid("web", `registered with the platform provider "c", and none of that name is configured; there are: a, b: name one of them`)
	must(t, l.store.SetRegisteredProvider(t.Context(), appID("web"), ""))
	l.poll()
	if app := l.app("web"); app.Provider != "b" || app.Sync.Status == deploy.SyncInvalidConfig {
		t.Errorf("without a registered provider it does not stay where it is: %+v", app)
	}
}

// TestRegistrationIsSeenAtOnce: a running trigger does not wait for its interval.
func TestRegistrationIsSeenAtOnce(t *testing.T) {
	l := newEnv(t, func(l *env, c *Config) { l.config.Discover, c.Interval = nil, time.Hour })
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.trigger.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	await(t, "the candidate is listed", func() bool { return len(l.candidates()) == 1 })
	l.add("web", "")
	await(t, "it is deployed", func() bool { return len(l.all("web")) == 1 })
	must(t, l.store.SetDisabled(t.Context(), appID("web"), true))
	must(t, l.store.SetDisabled(t.Context(), appID("web"), false))
	await(t, "it is deployed again", func() bool { return len(l.all("web")) == 2 })
	must(t, l.store.DeleteApplication(t.Context(), appID("web")))
	await(t, "it is a candidate", func() bool { return len(l.candidates()) == 1 })
}

// TestDisabledAgent: applications are registered and nothing is triggered, by a
// commit, by drift or by command; once it is enabled, what was missed is.
func TestDisabledAgent(t *testing.T) {
	disable := func(l *env, disabled bool) {
		t.Helper()
		_, err := l.store.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) { a.Disabled = disabled })
		must(t, err)
	}
	l := newEnv(t)
	web := appFile("web", "  trigger: {onOutOfSync: {disabled: false, minWindow: 1m}}")
	l.push("begin", map[string]string{"web/app.pipecd.yaml": web})
	l.finish("web", deploy.Success)
	disable(l, true)
	l.restart() // it is still so
	l.push("missed", map[string]string{"web/d.yaml": "2", "new/app.pipecd.yaml": appFile("new")})
	l.state("web", deploy.OutOfSync)
	l.pass(time.Hour)
	command := l.askSync("web")
	l.poll()
	l.wantRefused(command, "the agent is disabled: enable it first")
	if diff := cmp.Diff([]string{"new", "web"}, l.registered()); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}
	for dir, want := range map[string][]string{"web": {"begin SUCCESS"}, "new": nil} {
		if diff := cmp.Diff(want, l.deployments(dir)); diff != "" {
			t.Errorf("%s, while disabled (-want +got):\n%s", dir, diff)
		}
	}
	disable(l, false)
	l.poll()
	for dir, want := range map[string][]string{"web": {"begin SUCCESS", "missed PENDING"}, "new": {"missed PENDING"}} {
		if diff := cmp.Diff(want, l.deployments(dir)); diff != "" {
			t.Errorf("%s, enabled again (-want +got):\n%s", dir, diff)
		}
	}
}

// TestDisabledAgentKeepsChains: the block of a chain waits for the agent.
func TestDisabledAgentKeepsChains(t *testing.T) {
	l := newChainEnv(t)
	_, err := l.store.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) { a.Disabled = true })
	must(t, err)
	l.poll()
	if open, err := l.store.OpenCommands(t.Context(), deploy.CommandChainSync); err != nil || len(open) == 0 {
		t.Errorf("open commands of the chain: %v, %v", open, err)
	}
	_, err = l.store.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) { a.Disabled = false })
	must(t, err)
	l.poll()
	l.wantNoneOpen()
}

// duringPass is a Live that finds nothing and does something when it is asked.
type duringPass struct{ do func() }

func (d *duringPass) RunningCommits(context.Context, string, deploy.GitPath, string) ([]string, error) {
	do := d.do
	if d.do = nil; do != nil {
		do()
	}
	return nil, nil
}

func (*duringPass) Foreign(context.Context, string, deploy.Application, string) ([]deploy.AdoptedObject, error) {
	return nil, nil
}

// TestResetDuringAPass: what waited for an application is deployed also if the
// application is disabled and enabled, or deleted and added, while a pass decides
// about another commit.
func TestResetDuringAPass(t *testing.T) {
	disabled := func(l *env) {
		must(l.t, l.store.SetDisabled(l.t.Context(), appID("web"), true))
		must(l.t, l.store.SetDisabled(l.t.Context(), appID("web"), false))
	}
	added := func(l *env) {
		must(l.t, l.store.DeleteApplication(l.t.Context(), appID("web")))
		l.add("web", "")
	}
	for name, c := range map[string]struct {
		reset func(*env)
		file  string // of the head
		want  []string
	}{
		"disabled, untouched": {disabled, "x", []string{"begin FAILURE", "head PENDING"}},
		"disabled, touched":   {disabled, "web/x", []string{"begin FAILURE", "head PENDING"}},
		"added, untouched":    {added, "x", []string{"begin CANCELLED", "head PENDING"}},
		"added, touched":      {added, "web/x", []string{"begin CANCELLED", "head PENDING"}},
	} {
		t.Run(name, func(t *testing.T) {
			live := &duringPass{}
			l := newEnv(t, func(_ *env, cfg *Config) { cfg.Live = live })
			l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
			live.do = func() { c.reset(l) }
			l.push("head", map[string]string{c.file: "1"})
			if live.do != nil {
				t.Fatal("nothing was done during the pass")
			}
			if got := l.app("web").EvaluatedCommit; got != "" {
				t.Errorf("the pass has taken back what was forgotten: %q", got)
			}
			l.poll()
			if diff := cmp.Diff(c.want, l.deployments("web")); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
		})
	}
}
