package trigger

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// newStoppedEnv heals three times and finds the application drifted once more.
func newStoppedEnv(t *testing.T, edit ...func(*env, *Config)) *env {
	t.Helper()
	l := newDriftEnv(t, edit...)
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
	l := newStoppedEnv(t, func(_ *env, c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		l.pass(2 * time.Hour) // time alone heals nothing
		l.poll()
	}
	l.restart() // nor does another start
	l.poll()
	if n := l.heals("web"); n != maxHeals {
		t.Errorf("%d self-heals", n)
	}
	notice := l.app("web").Notice
	for _, text := range []string{"Self-healing stopped: ", "after 3 self-heals of commit " + deploy.ShortHash(l.upstream.Head()) + " within 1h. ", "Healing resumes with a commit"} {
		if !strings.Contains(notice, text) {
			t.Errorf("the notice does not say %q: %s", text, notice)
		}
	}
	if n := strings.Count(log.String(), "self-healing stopped"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	l.wantStops(1)
}

// wantStops fails unless that many notifications report that healing stopped.
func (l *env) wantStops(want int) {
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
	cases := map[string]func(l *env){
		"a fourth, when the first was more than an hour ago": func(l *env) {
			l.drift("web")
			l.finish("web", deploy.Success)
			l.pass(time.Hour)
			for range 2 {
				l.drift("web")
				l.finish("web", deploy.Success)
			}
		},
		"those of the commit before": func(l *env) {
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
			l := newDriftEnv(t)
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
	l := newDriftEnv(t)
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
		play   func(t *testing.T, l *env)
		resume bool
	}{
		{"a commit to the application", func(t *testing.T, l *env) {
			l.push("change", files{"web/d.yaml": "2"})
			l.finish("web", deploy.Success)
		}, true},
		{"a commit elsewhere", func(t *testing.T, l *env) { l.push("elsewhere", files{"x": "2"}) }, false},
		{"a sync by hand that succeeds", func(t *testing.T, l *env) {
			l.askSync("web")
			l.poll()
			l.finish("web", deploy.Success)
		}, true},
		{"a sync by hand that fails", func(t *testing.T, l *env) {
			l.askSync("web")
			l.poll()
			l.finish("web", deploy.Failure)
		}, false},
		{"the live state is as in Git", func(t *testing.T, l *env) {
			l.state("web", deploy.Synced)
			l.poll()
		}, true},
		{"the live state is not known", func(t *testing.T, l *env) {
			l.state("web", deploy.SyncUnknown)
			l.poll()
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newStoppedEnv(t)
			c.play(t, l)
			l.poll()
			if app := l.app("web"); (app.Notice == "") != c.resume {
				t.Errorf("the application says %q", app.Notice)
			}
			l.state("web", deploy.OutOfSync)
			l.pass(5 * time.Minute)
			l.poll()
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
	l := newDriftEnv(t)
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
