package trigger

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestHealDue states the conditions under which a drifted application is healed.
func TestHealDue(t *testing.T) {
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	ended := func(status deploy.Status, ago time.Duration) *deploy.Deployment {
		d := &deploy.Deployment{Status: status}
		if status.Completed() {
			d.CompletedAt = now.Add(-ago)
		}
		return d
	}
	on := config.OnOutOfSync{MinWindow: 5 * time.Minute}
	drifted := deploy.Application{Sync: deploy.SyncState{Status: deploy.OutOfSync}}
	with := func(edit func(*deploy.Application)) deploy.Application {
		app := drifted
		edit(&app)
		return app
	}
	cases := []struct {
		name string
		app  deploy.Application
		on   config.OnOutOfSync
		last *deploy.Deployment
		in   time.Duration // until it is due
		ok   bool
	}{
		{"the last deployment completed 4m ago, minWindow 5m", drifted, on, ended(deploy.Success, 4*time.Minute), time.Minute, true},
		{"exactly minWindow ago", drifted, on, ended(deploy.Success, 5*time.Minute), 0, true},
		{"long ago", drifted, on, ended(deploy.Success, time.Hour), -55 * time.Minute, true},
		{"a failed one counts like any other", drifted, on, ended(deploy.Failure, 4*time.Minute), time.Minute, true},
		{"a cancelled one too", drifted, on, ended(deploy.Cancelled, 6*time.Minute), -time.Minute, true},
		{"no minWindow", drifted, config.OnOutOfSync{}, ended(deploy.Success, time.Minute), syncStateLag - time.Minute, true},
		{"no minWindow, before the result of the last one is known", drifted, config.OnOutOfSync{}, ended(deploy.Success, time.Second), syncStateLag - time.Second, true},
		{"never deployed", drifted, on, nil, 0, true},
		{"the last one waits", drifted, on, ended(deploy.Pending, 0), 0, false},
		{"the last one runs", drifted, on, ended(deploy.Running, 0), 0, false},
		{"the last one rolls back", drifted, on, ended(deploy.RollingBack, 0), 0, false},
		{"an earlier one runs", with(func(a *deploy.Application) { a.Deploying = true }), on, ended(deploy.Cancelled, time.Hour), 0, false},
		{"only drift that healing does not fix", deploy.Application{Sync: deploy.SyncState{Status: deploy.OutOfSync, LeftOver: true}}, on, ended(deploy.Success, time.Hour), 0, false},
		{"the trigger is disabled", drifted, config.OnOutOfSync{Disabled: true, MinWindow: time.Minute}, ended(deploy.Success, time.Hour), 0, false},
		{"synced", with(func(a *deploy.Application) { a.Sync.Status = deploy.Synced }), on, ended(deploy.Success, time.Hour), 0, false},
		{"unknown", with(func(a *deploy.Application) { a.Sync.Status = deploy.SyncUnknown }), on, nil, 0, false},
		{"invalid configuration", with(func(a *deploy.Application) { a.Sync.Status = deploy.SyncInvalidConfig }), on, nil, 0, false},
		{"deploying", with(func(a *deploy.Application) { a.Sync.Status = deploy.SyncDeploying }), on, nil, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			due, ok := healDue(c.app, c.on, c.last, now)
			if ok != c.ok || ok && due.Sub(now) != c.in {
				t.Errorf("due in %s, %v; want in %s, %v", due.Sub(now), ok, c.in, c.ok)
			}
		})
	}
}

const healing = "  trigger: {onOutOfSync: {disabled: false, minWindow: 5m}}"

// newDriftEnv begins with one application that heals itself and was deployed.
func newDriftEnv(t *testing.T, edit ...func(*env, *Config)) *env {
	t.Helper()
	l := newEnv(t, edit...)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", healing)})
	l.finish("web", deploy.Success)
	return l
}

// state is what drift detection writes.
func (l *env) state(dir string, status deploy.SyncStatus) {
	l.t.Helper()
	_, err := l.store.SetSyncState(l.t.Context(), appID(dir), deploy.SyncState{Status: status, ShortReason: "web differs", At: l.clock()})
	must(l.t, err)
}

// finish runs the newest deployment of an application to its end.
func (l *env) finish(dir string, status deploy.Status) {
	l.t.Helper()
	d := l.run(dir)
	_, err := l.store.UpdateDeployment(l.t.Context(), d.ID, func(d *deploy.Deployment) error {
		return d.Complete(status, "as the test says", l.clock())
	})
	must(l.t, err)
}

func (l *env) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// drift lets minWindow pass and the application drift, and polls.
func (l *env) drift(dir string) {
	l.t.Helper()
	l.state(dir, deploy.Synced)
	l.state(dir, deploy.OutOfSync)
	l.pass(5 * time.Minute)
	l.poll()
}

// heals counts the self-heals of an application.
func (l *env) heals(dir string) (n int) {
	l.t.Helper()
	for _, d := range l.all(dir) {
		if d.Trigger.Kind == deploy.OnOutOfSync {
			n++
		}
	}
	return n
}

func TestSelfHeal(t *testing.T) {
	type files = map[string]string
	cases := []struct {
		name string
		play func(t *testing.T, l *env)
		want []string
	}{
		{"drift is healed when minWindow has passed", func(t *testing.T, l *env) {
			l.state("web", deploy.OutOfSync)
			l.poll()
			l.pass(4 * time.Minute)
			l.poll()
			if l.heals("web") > 0 {
				t.Error("healed too early")
			}
			l.pass(time.Minute)
			l.poll()
			l.poll()
		}, []string{"ON_COMMIT begin SUCCESS", "ON_OUT_OF_SYNC begin PENDING"}},
		{"no drift, no healing", func(t *testing.T, l *env) {
			l.pass(time.Hour)
			l.poll()
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"a commit goes before drift", func(t *testing.T, l *env) {
			l.state("web", deploy.OutOfSync)
			l.pass(time.Hour)
			l.push("change", files{"web/d.yaml": "2"})
			l.poll()
		}, []string{"ON_COMMIT begin SUCCESS", "ON_COMMIT change PENDING"}},
		{"a commit elsewhere is what heals", func(t *testing.T, l *env) {
			l.state("web", deploy.OutOfSync)
			l.pass(time.Hour)
			l.push("elsewhere", files{"x": "1"})
		}, []string{"ON_COMMIT begin SUCCESS", "ON_OUT_OF_SYNC elsewhere PENDING"}},
		{"a disabled application is left alone", func(t *testing.T, l *env) {
			must(t, l.store.SetDisabled(t.Context(), appID("web"), true))
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"a deleted application is left alone", func(t *testing.T, l *env) {
			must(t, l.store.DeleteApplication(t.Context(), appID("web")))
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"an invalid configuration is not deployed", func(t *testing.T, l *env) {
			l.push("break", files{"web/app.pipecd.yaml": appFile("web", "  timeout: nonsense")})
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"disabled is the default", func(t *testing.T, l *env) {
			l.push("default", files{"web/app.pipecd.yaml": appFile("web")})
			l.finish("web", deploy.Success)
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS", "ON_COMMIT default SUCCESS"}},
		{"a running deployment comes first", func(t *testing.T, l *env) {
			l.push("change", files{"web/d.yaml": "2"})
			l.run("web")
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS", "ON_COMMIT change RUNNING"}},
		{"a failed heal is repeated", func(t *testing.T, l *env) {
			l.drift("web")
			l.finish("web", deploy.Failure)
			l.pass(5 * time.Minute)
			l.poll()
		}, []string{"ON_COMMIT begin SUCCESS", "ON_OUT_OF_SYNC begin FAILURE", "ON_OUT_OF_SYNC begin PENDING"}},
		{"nothing is healed while the branch cannot be read", func(t *testing.T, l *env) {
			l.config.Branch = "elsewhere"
			l.restart()
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newDriftEnv(t)
			c.play(t, l)
			var got []string
			for _, d := range l.all("web") {
				got = append(got, string(d.Trigger.Kind)+" "+d.Trigger.Commit.Message+" "+string(d.Status))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatAHealIsMadeWith(t *testing.T) {
	l := newDriftEnv(t)
	l.drift("web")
	ds := l.all("web")
	got := ds[len(ds)-1].Trigger
	want := deploy.Trigger{
		Kind: deploy.OnOutOfSync, Strategy: deploy.StrategyAuto, Commit: ds[0].Trigger.Commit, At: got.At,
		StrategySummary: "Self-heal because the live state differs from Git: web differs",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trigger (-want +got):\n%s", diff)
	}
}

// TestHealsWithoutPolling: the end of minWindow is what wakes the watcher, and
// neither drift nor its waiting asks the remote anything.
func TestHealsWithoutPolling(t *testing.T) {
	const window = syncStateLag + 200*time.Millisecond
	server := (*gittest.HTTPServer)(nil)
	l := newEnv(t, func(l *env, c *Config) {
		server = l.upstream.HTTP(t, gittest.HTTPOptions{})
		l.config.Remote, c.Interval, c.Now = server.URL, time.Hour, time.Now
	})
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  trigger: {onOutOfSync: {disabled: false, minWindow: "+window.String()+"}}")})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { must(t, l.trigger.Run(ctx)) })
	defer running.Wait()
	defer stop()
	await(t, "the first deployment", func() bool { return len(l.all("web")) == 1 })
	l.state("web", deploy.OutOfSync)
	before := server.Listings()
	d := l.run("web")
	var ended time.Time
	_, err := l.store.UpdateDeployment(t.Context(), d.ID, func(d *deploy.Deployment) error {
		ended = time.Now()
		return d.Complete(deploy.Success, "", ended)
	})
	must(t, err)
	await(t, "the self-heal", func() bool { return l.heals("web") == 1 })
	ds := l.all("web")
	if took := ds[len(ds)-1].Trigger.At.Sub(ended); took < window-time.Millisecond || took > window+20*time.Second {
		t.Errorf("healed after %s, minWindow is %s", took, window)
	}
	if n := server.Listings() - before; n != 1 {
		t.Errorf("the remote was asked %d times, once is needed", n)
	}
}
