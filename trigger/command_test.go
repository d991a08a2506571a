package trigger

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestSyncByHand: a sync command is answered with a deployment of the head.
func TestSyncByHand(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	head := l.upstream.Push(t, "elsewhere", map[string]string{"x": "1"}) // not polled yet
	id := l.askSync("web")
	l.poll()
	ds := l.all("web")
	if len(ds) != 2 {
		t.Fatalf("deployments: %v", l.deployments("web"))
	}
	want := deploy.Trigger{
		Kind: deploy.OnCommand, Commander: "ann", Strategy: deploy.StrategyQuickSync,
		StrategySummary: "Sync by hand (QUICK_SYNC) asked for by ann", Commit: ds[1].Trigger.Commit, At: ds[1].Trigger.At,
	}
	if diff := cmp.Diff(want, ds[1].Trigger); diff != "" || want.Commit.Hash != head {
		t.Errorf("made for %s, the head is %s (-want +got):\n%s", want.Commit.Hash, head, diff)
	}
	c := l.command(id)
	if c.Status != deploy.CommandSucceeded || c.Metadata[deploy.MetaTriggeredDeployment] != ds[1].ID {
		t.Errorf("the command is %s %v, want SUCCEEDED with %s", c.Status, c.Metadata, ds[1].ID)
	}
	if ds[0].Status != deploy.Pending {
		t.Errorf("the sync superseded what waited: %s", ds[0].Status)
	}
}

// TestSyncToAnEarlierCommit: a command may name a commit of the branch's history;
// the head, decided about before, is not deployed again because of it.
func TestSyncToAnEarlierCommit(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	first := l.upstream.Head()
	l.push("rename", map[string]string{"web/app.pipecd.yaml": appFile("renamed")})
	ask := func(commit string) deploy.Command {
		t.Helper()
		c, err := l.store.CreateCommand(t.Context(), deploy.Command{
			ID: l.newID(), Type: deploy.CommandSync, ApplicationID: appID("web"), Commander: "ann", Commit: commit, OverrideWindows: true,
		})
		must(t, err)
		l.poll()
		return l.command(c.ID)
	}

	for _, name := range []string{first, first[:git.MinAbbreviation], first[:12]} {
		answered := ask(name)
		d, err := l.store.Deployment(t.Context(), answered.Metadata[deploy.MetaTriggeredDeployment])
		must(t, err)
		if d.Trigger.Commit.Hash != first || d.ApplicationName != "web" || !d.Trigger.OverrideWindows {
			t.Errorf("%s: deployed commit %s as %s, want %s as web, sync windows overridden", name, d.Trigger.Commit.Hash, d.ApplicationName, first)
		}
	}
	before := len(l.all("web"))
	l.poll()
	if got := len(l.all("web")); got != before {
		t.Errorf("the next poll made %d deployments more", got-before)
	}

	for _, name := range []string{"0123456789012345678901234567890123456789", "0123456", first[:6], "main"} {
		refused := ask(name)
		if refused.Status != deploy.CommandFailed || !strings.Contains(refused.Metadata[deploy.MetaReason], "is not in branch main of repository apps") {
			t.Errorf("a commit that does not exist, %s: %s %v", name, refused.Status, refused.Metadata)
		}
	}
	unnamed := l.upstream.Push(t, "before there was one", map[string]string{"x": "1"})
	l.push("other", map[string]string{"other/app.pipecd.yaml": appFile("other")})
	c, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: "early", Type: deploy.CommandSync, ApplicationID: appID("other"), Commit: unnamed})
	must(t, err)
	l.poll()
	l.wantRefused(c.ID, "other/app.pipecd.yaml does not exist at commit "+unnamed[:7])
}

// TestRollbackSaysSo: the reason of a deployment that goes back names where to and
// which deployment ran there, not a sync.
func TestRollbackSaysSo(t *testing.T) {
	l := newEnv(t)
	first := l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.push("change", map[string]string{"web/d.yaml": "2"})
	before := l.all("web")[0].ID
	_, err := l.store.CreateCommand(t.Context(), deploy.Command{
		ID: l.newID(), Type: deploy.CommandSync, ApplicationID: appID("web"), Commander: "ann", Commit: first, Strategy: deploy.StrategyQuickSync,
		Metadata: map[string]string{deploy.MetaRollbackTo: before},
	})
	must(t, err)
	l.poll()
	ds := l.all("web")
	want := "Rollback to commit " + deploy.ShortHash(first) + " of deployment " + before + ", asked for by ann"
	if got := ds[len(ds)-1].Trigger.StrategySummary; got != want {
		t.Errorf("the deployment says %q, want %q", got, want)
	}
}

// TestSyncIsAnsweredOnce: a command that is handed over again, as after a crash
// between the deployment and its announcement, makes no second deployment.
func TestSyncIsAnsweredOnce(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	c := l.command(l.askSync("web"))
	w := l.trigger.watchers["apps"]
	for range 3 {
		w.wake([]deploy.Command{c})
		w.poll(t.Context())
	}
	if got := l.deployments("web"); len(got) != 2 {
		t.Errorf("deployments: %v", got)
	}
	l.wantNoneOpen()
}

// TestRefusals states why a sync command is refused.
func TestRefusals(t *testing.T) {
	cases := []struct {
		name string
		do   func(t *testing.T, l *env)
		want string
	}{
		{"deleted", func(t *testing.T, l *env) { must(t, l.store.DeleteApplication(t.Context(), appID("web"))) }, "does not exist"},
		{"disabled", func(t *testing.T, l *env) { must(t, l.store.SetDisabled(t.Context(), appID("web"), true)) }, "application web is disabled: enable it first"},
		{"configuration gone", func(t *testing.T, l *env) { l.remove("web/app.pipecd.yaml") }, "web/app.pipecd.yaml does not exist at commit"},
		{"configuration broken", func(t *testing.T, l *env) {
			l.upstream.Push(t, "break", map[string]string{"web/app.pipecd.yaml": appFile("web", "  timeout: nonsense")})
		}, "web/app.pipecd.yaml:5"},
		{"no provider", func(t *testing.T, l *env) { l.restart(func(_ *env, c *Config) { c.Providers = nil }) }, "the agent has no platform provider"},
		{"forbidden by the application", func(t *testing.T, l *env) {
			l.upstream.Push(t, "forbid", map[string]string{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommand: {disabled: true}}")})
		}, "web/app.pipecd.yaml forbids syncs by command (spec.trigger.onCommand.disabled)"},
		{"branch gone", func(t *testing.T, l *env) {
			l.config.Branch = "elsewhere"
			l.restart()
		}, "the repository cannot be read: "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newEnv(t)
			l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/d.yaml": "1"})
			c.do(t, l)
			id := l.askSync("web")
			l.poll()
			l.wantRefused(id, c.want)
			l.wantNoneOpen()
			for _, d := range l.all("web") {
				if d.Trigger.Kind == deploy.OnCommand {
					t.Errorf("the refused command made deployment %s", d.ID)
				}
			}
		})
	}
}

// TestRefusedWithoutARepository: commands that no watcher can answer.
func TestRefusedWithoutARepository(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	unknown := l.askSync("nowhere")
	l.poll()
	l.wantRefused(unknown, "does not exist")

	l.config.RepoID = "others"
	l.restart()
	known := l.askSync("web")
	must(t, l.trigger.dispatch(t.Context()))
	l.wantRefused(known, `repository "apps" of application web is not in the agent's configuration`)

	l.restart(func(_ *env, c *Config) { c.Unwatched = map[string]error{"apps": errors.New("no space left on device")} })
	known = l.askSync("web")
	must(t, l.trigger.dispatch(t.Context()))
	l.wantRefused(known, `repository "apps" of application web cannot be watched: no space left on device`)
	l.wantNoneOpen()
}

// TestDeadRepository: one repository whose server answers nothing. Its commands
// are answered with the reason, and the other repository is served meanwhile.
func TestDeadRepository(t *testing.T) {
	dead := gittest.New(t)
	dead.Push(t, "begin", map[string]string{"old/app.pipecd.yaml": appFile("old")})
	server := dead.HTTP(t, gittest.HTTPOptions{})
	deadConfig := config.Repository{RepoID: "dead", Remote: server.URL, Branch: gittest.Branch, Discover: &config.Discover{}}
	serves := func(timeout time.Duration) func(*env, *Config) {
		return func(_ *env, c *Config) {
			c.Now = time.Now
			c.Repositories = append(c.Repositories, Repository{Config: deadConfig, Git: openRepo(t, deadConfig, t.TempDir(), timeout)})
		}
	}
	l := newEnv(t, serves(remoteTimeout))
	oldApp := deploy.ApplicationID(deploy.GitPath{RepoID: "dead", Dir: "old", ConfigFile: "app.pipecd.yaml"})
	l.trigger.watchers["dead"].poll(t.Context())
	if _, err := l.store.Application(t.Context(), oldApp); err != nil {
		t.Fatal(err)
	}
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	server.SetFault(gittest.Hang())

	// The server is waited for longer than the other repository needs, however busy the machine is.
	l.restart(serves(time.Hour))
	stop := l.start()
	if _, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: "dead", Type: deploy.CommandSync, ApplicationID: oldApp}); err != nil {
		t.Fatal(err)
	}
	await(t, "the other repository's first deployment", func() bool { return len(l.all("web")) == 1 })
	if _, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: "live", Type: deploy.CommandSync, ApplicationID: appID("web")}); err != nil {
		t.Fatal(err)
	}
	await(t, "the sync of the other repository", func() bool { return l.command("live").Status == deploy.CommandSucceeded })
	if got := l.command("dead").Status; got != deploy.CommandOpen {
		t.Errorf("the server has not answered, and the command is %s", got)
	}
	stop()

	l.restart(serves(time.Second))
	stop = l.start()
	await(t, "the dead repository's command to be answered", func() bool { return l.command("dead").Status != deploy.CommandOpen })
	l.wantRefused("dead", "no answer within 1s")
	l.wantNoneOpen()
	stop()

	server.SetFault(gittest.Fail(http.StatusServiceUnavailable))
	l.restart(serves(remoteTimeout))
	l.start()
	if _, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: "failing", Type: deploy.CommandSync, ApplicationID: oldApp}); err != nil {
		t.Fatal(err)
	}
	await(t, "the failing repository's command to be answered", func() bool { return l.command("failing").Status != deploy.CommandOpen })
	l.wantRefused("failing", "the repository cannot be read: ")

	server.SetFault(nil)
	if _, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: "back", Type: deploy.CommandSync, ApplicationID: oldApp}); err != nil {
		t.Fatal(err)
	}
	await(t, "the repository to be served again", func() bool { return l.command("back").Status == deploy.CommandSucceeded })
}

// TestStopsWhileARepositoryHangs: a shutdown waits for no dead server, and leaves
// its commands to the next start.
func TestStopsWhileARepositoryHangs(t *testing.T) {
	dead := gittest.New(t)
	server := dead.HTTP(t, gittest.HTTPOptions{})
	server.SetFault(gittest.Hang())
	l := newEnv(t, func(l *env, c *Config) { l.config.Remote = server.URL })
	if _, err := l.store.PutApplication(t.Context(), deploy.Application{ID: appID("web"), Name: "web", Git: deploy.GitPath{RepoID: "apps"}}); err != nil {
		t.Fatal(err)
	}
	id := l.askSync("web")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.trigger.Run(ctx) }()
	await(t, "the remote to be asked", func() bool { return server.Listings() > 0 })
	began := time.Now()
	stop()
	must(t, <-ended)
	if took := time.Since(began); took > 20*time.Second { // the remote is given a minute
		t.Errorf("stopping took %s", took)
	}
	if got := l.command(id); got.Status != deploy.CommandOpen {
		t.Errorf("the command is %s because %q; the next start should answer it", got.Status, got.Metadata[deploy.MetaReason])
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// await asks until done says yes.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10 minutes for %s", what)
		}
	}
}
