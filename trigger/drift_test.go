package trigger

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
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
		{"no minWindow", drifted, config.OnOutOfSync{}, ended(deploy.Success, time.Second), -time.Second, true},
		{"never deployed", drifted, on, nil, 0, true},
		{"the last one waits", drifted, on, ended(deploy.Pending, 0), 0, false},
		{"the last one runs", drifted, on, ended(deploy.Running, 0), 0, false},
		{"the last one rolls back", drifted, on, ended(deploy.RollingBack, 0), 0, false},
		{"an earlier one runs", with(func(a *deploy.Application) { a.Deploying = true }), on, ended(deploy.Cancelled, time.Hour), 0, false},
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

// newDriftLab begins with one application that heals itself and was deployed.
func newDriftLab(t *testing.T, edit ...func(*lab, *Config)) *lab {
	t.Helper()
	l := newLab(t, edit...)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", healing)})
	l.finish("web", deploy.Success)
	return l
}

// state is what drift detection writes.
func (l *lab) state(dir string, status deploy.SyncStatus) {
	l.t.Helper()
	_, err := l.store.SetSyncState(l.t.Context(), appID(dir), deploy.SyncState{Status: status, ShortReason: "web differs", At: l.clock()})
	must(l.t, err)
}

// finish runs the newest deployment of an application to its end.
func (l *lab) finish(dir string, status deploy.Status) {
	l.t.Helper()
	d := l.run(dir)
	_, err := l.store.UpdateDeployment(l.t.Context(), d.ID, func(d *deploy.Deployment) error {
		return d.Complete(status, "as the test says", l.clock())
	})
	must(l.t, err)
}

func (l *lab) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// drift lets minWindow pass and the application drift, and looks.
func (l *lab) drift(dir string) {
	l.t.Helper()
	l.state(dir, deploy.Synced)
	l.state(dir, deploy.OutOfSync)
	l.pass(5 * time.Minute)
	l.look()
}

// heals counts the self-heals of an application.
func (l *lab) heals(dir string) (n int) {
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
		play func(t *testing.T, l *lab)
		want []string
	}{
		{"drift is healed when minWindow has passed", func(t *testing.T, l *lab) {
			l.state("web", deploy.OutOfSync)
			l.look()
			l.pass(4 * time.Minute)
			l.look()
			if l.heals("web") > 0 {
				t.Error("healed too early")
			}
			l.pass(time.Minute)
			l.look()
			l.look()
		}, []string{"ON_COMMIT begin SUCCESS", "ON_OUT_OF_SYNC begin PENDING"}},
		{"no drift, no healing", func(t *testing.T, l *lab) {
			l.pass(time.Hour)
			l.look()
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"a commit goes before drift", func(t *testing.T, l *lab) {
			l.state("web", deploy.OutOfSync)
			l.pass(time.Hour)
			l.push("change", files{"web/d.yaml": "2"})
			l.look()
		}, []string{"ON_COMMIT begin SUCCESS", "ON_COMMIT change PENDING"}},
		{"a commit elsewhere is what heals", func(t *testing.T, l *lab) {
			l.state("web", deploy.OutOfSync)
			l.pass(time.Hour)
			l.push("elsewhere", files{"x": "1"})
		}, []string{"ON_COMMIT begin SUCCESS", "ON_OUT_OF_SYNC elsewhere PENDING"}},
		{"a disabled application is left alone", func(t *testing.T, l *lab) {
			must(t, l.store.SetDisabled(t.Context(), appID("web"), true))
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"a deleted application is left alone", func(t *testing.T, l *lab) {
			must(t, l.store.DeleteApplication(t.Context(), appID("web")))
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"an invalid configuration is not deployed", func(t *testing.T, l *lab) {
			l.push("break", files{"web/app.pipecd.yaml": appFile("web", "  nonsense: true")})
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
		{"disabled is the default", func(t *testing.T, l *lab) {
			l.push("default", files{"web/app.pipecd.yaml": appFile("web")})
			l.finish("web", deploy.Success)
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS", "ON_COMMIT default SUCCESS"}},
		{"a running deployment comes first", func(t *testing.T, l *lab) {
			l.push("change", files{"web/d.yaml": "2"})
			l.run("web")
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS", "ON_COMMIT change RUNNING"}},
		{"a failed heal is repeated", func(t *testing.T, l *lab) {
			l.drift("web")
			l.finish("web", deploy.Failure)
			l.pass(5 * time.Minute)
			l.look()
		}, []string{"ON_COMMIT begin SUCCESS", "ON_OUT_OF_SYNC begin FAILURE", "ON_OUT_OF_SYNC begin PENDING"}},
		{"nothing is healed while the branch cannot be read", func(t *testing.T, l *lab) {
			l.config.Branch = "elsewhere"
			l.restart()
			l.drift("web")
		}, []string{"ON_COMMIT begin SUCCESS"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newDriftLab(t)
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
	l := newDriftLab(t)
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

// stoppedLab heals three times and finds the application drifted once more.
func stoppedLab(t *testing.T, edit ...func(*lab, *Config)) *lab {
	t.Helper()
	l := newDriftLab(t, edit...)
	for range maxHeals {
		l.drift("web")
		l.finish("web", deploy.Success)
	}
	l.drift("web")
	return l
}

// TestLoopGuard: drift that comes back again and again is not undone for ever,
// and that is said once.
func TestLoopGuard(t *testing.T) {
	var log bytes.Buffer
	l := stoppedLab(t, func(_ *lab, c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		l.pass(2 * time.Hour) // time alone heals nothing
		l.look()
	}
	l.restart() // nor does another start
	l.look()
	if n := l.heals("web"); n != maxHeals {
		t.Errorf("%d self-heals", n)
	}
	notice := l.app("web").Notice
	for _, text := range []string{"Self-healing stopped: ", "after 3 self-heals of commit " + deploy.ShortHash(l.upstream.Head()) + " within 1h", "Healing resumes with a commit"} {
		if !strings.Contains(notice, text) {
			t.Errorf("the notice does not say %q: %s", text, notice)
		}
	}
	if n := strings.Count(log.String(), "self-healing stopped"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	l.wantStops(1)
}

// wantStops fails unless so many notifications tell that healing stopped.
func (l *lab) wantStops(want int) {
	l.t.Helper()
	events, err := l.store.Events(l.t.Context(), 0, 0)
	must(l.t, err)
	n := 0
	for _, e := range events {
		if e.Type == deploy.EventSelfHealStopped {
			n++
			if e.ApplicationID != appID("web") || !strings.Contains(string(e.Payload), `"application":"web"`) || !strings.Contains(string(e.Payload), stopped) {
				l.t.Errorf("event %+v with %s", e, e.Payload)
			}
		}
	}
	if n != want {
		l.t.Errorf("%d notifications, want %d", n, want)
	}
}

// TestHealsThatAreNotALoop: what the guard lets pass.
func TestHealsThatAreNotALoop(t *testing.T) {
	cases := map[string]func(l *lab){
		"a fourth, when the first was more than an hour ago": func(l *lab) {
			l.drift("web")
			l.finish("web", deploy.Success)
			l.pass(time.Hour)
			for range 2 {
				l.drift("web")
				l.finish("web", deploy.Success)
			}
		},
		"those of the commit before": func(l *lab) {
			for range 2 {
				l.drift("web")
				l.finish("web", deploy.Success)
			}
			l.push("change", map[string]string{"web/d.yaml": "2"})
			l.finish("web", deploy.Success)
			l.drift("web")
			l.finish("web", deploy.Success)
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			l := newDriftLab(t)
			play(l)
			l.drift("web")
			if n, notice := l.heals("web"), l.app("web").Notice; n != 4 || notice != "" {
				t.Errorf("%d self-heals, and the application says %q", n, notice)
			}
		})
	}
}

// TestCommitsElsewhereResetNothing: in a busy repository every head is another
// commit, and the guard must hold nevertheless.
func TestCommitsElsewhereResetNothing(t *testing.T) {
	l := newDriftLab(t)
	for i := range 5 {
		l.upstream.Push(t, "elsewhere", map[string]string{"x": strings.Repeat("x", i+1)})
		l.drift("web")
		if l.heals("web") > i {
			l.finish("web", deploy.Success)
		}
	}
	if n := l.heals("web"); n != maxHeals || !healingStopped(l.app("web")) {
		t.Errorf("%d self-heals, and the application says %q", n, l.app("web").Notice)
	}
}

// TestHealingResumes states what lets healing go on, and what does not.
func TestHealingResumes(t *testing.T) {
	type files = map[string]string
	cases := []struct {
		name   string
		play   func(t *testing.T, l *lab)
		resume bool
	}{
		{"a commit to the application", func(t *testing.T, l *lab) {
			l.push("change", files{"web/d.yaml": "2"})
			l.finish("web", deploy.Success)
		}, true},
		{"a commit elsewhere", func(t *testing.T, l *lab) { l.push("elsewhere", files{"x": "2"}) }, false},
		{"a sync by hand that succeeds", func(t *testing.T, l *lab) {
			l.askSync("web")
			l.look()
			l.finish("web", deploy.Success)
		}, true},
		{"a sync by hand that fails", func(t *testing.T, l *lab) {
			l.askSync("web")
			l.look()
			l.finish("web", deploy.Failure)
		}, false},
		{"the live state is as in Git", func(t *testing.T, l *lab) {
			l.state("web", deploy.Synced)
			l.look()
		}, true},
		{"the live state is not known", func(t *testing.T, l *lab) {
			l.state("web", deploy.SyncUnknown)
			l.look()
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := stoppedLab(t)
			c.play(t, l)
			l.look()
			if app := l.app("web"); (app.Notice == "") != c.resume {
				t.Errorf("the application says %q", app.Notice)
			}
			l.state("web", deploy.OutOfSync)
			l.pass(5 * time.Minute)
			l.look()
			want := maxHeals
			if c.resume {
				want++
			}
			if n := l.heals("web"); n != want {
				t.Errorf("%d self-heals, want %d", n, want)
			}
			l.wantStops(1)
		})
	}
}

// TestHealingWithoutOnCommit: where drift is what deploys, each commit is its own.
func TestHealingWithoutOnCommit(t *testing.T) {
	l := newDriftLab(t)
	l.push("off", map[string]string{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommit: {disabled: true}, onOutOfSync: {disabled: false, minWindow: 1m}}")})
	for i := range 5 {
		l.push("change", map[string]string{"web/d.yaml": strings.Repeat("x", i+1)})
		l.drift("web")
		l.finish("web", deploy.Success)
	}
	if n := l.heals("web"); n != 5 {
		t.Errorf("%d self-heals of five commits", n)
	}
	for range maxHeals {
		l.drift("web")
		if ds := l.all("web"); !ds[len(ds)-1].Status.Completed() {
			l.finish("web", deploy.Success)
		}
	}
	if n := l.heals("web"); n != 5+maxHeals-1 || !healingStopped(l.app("web")) {
		t.Errorf("%d self-heals, and the application says %q", n, l.app("web").Notice)
	}
	l.push("change", map[string]string{"web/d.yaml": "new"})
	l.drift("web")
	if n := l.heals("web"); n != 5+maxHeals || l.app("web").Notice != "" {
		t.Errorf("after a commit %d self-heals, and the application says %q", n, l.app("web").Notice)
	}
}

// TestHealsWithoutPolling: the end of minWindow is what wakes the watcher, and
// neither drift nor its waiting asks the remote anything.
func TestHealsWithoutPolling(t *testing.T) {
	const window = 700 * time.Millisecond
	server := (*gittest.HTTPServer)(nil)
	l := newLab(t, func(l *lab, c *Config) {
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
	if took := ds[len(ds)-1].Trigger.At.Sub(ended); took < window-time.Millisecond || took > window+3*time.Second {
		t.Errorf("healed after %s, minWindow is %s", took, window)
	}
	if n := server.Listings() - before; n != 1 {
		t.Errorf("the remote was asked %d times, once is needed", n)
	}
}
