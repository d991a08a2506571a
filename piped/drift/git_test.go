package drift_test

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/store"
)

// TestInvalidConfigEndsNoPeriod: a head that declares nothing leaves the commits before
// it undeployed, and nobody is told that the application is as in Git.
func TestInvalidConfigEndsNoPeriod(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.git = fakeGit{commits: []string{"c2"}, differs: true}
	l.evaluate("c2")
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
	for _, state := range []deploy.SyncStatus{deploy.SyncInvalidConfig, deploy.SyncUnknown} {
		if _, err := l.store.SetSyncState(t.Context(), "web", deploy.SyncState{Status: state, ShortReason: "the trigger says so"}); err != nil {
			t.Fatal(err)
		}
		if r := l.judge("web"); len(r.Undeployed) != 1 || r.End != "" {
			t.Errorf("with %s the report is %+v", state, r)
		}
		l.wantPeriods("period-1 ")
	}
	l.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
}

// TestACommitThatFailedIsNotHealed: what a deployment could not bring live is told, and
// tried again by itself only once Git declares something else.
func TestACommitThatFailedIsNotHealed(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.deploy("web", "d2", "c2", deploy.Failure)
	l.git = fakeGit{commits: []string{"c2"}, differs: true}
	for _, c := range []struct {
		head   string
		healed bool
	}{{"c2", false}, {"c3", true}} {
		l.evaluate(c.head)
		l.judge("web")
		l.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
		app, err := l.store.Application(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		if app.Sync.LeftOver == c.healed {
			t.Errorf("at %s it is left over: %v", c.head, app.Sync.LeftOver)
		}
	}
}

// TestSlowRenderingHoldsUpNoOther: while the chart of an application does not come, others
// are compared, and so is what is live of it; the report says what is waited for. When it
// has come, the application is judged again.
func TestSlowRenderingHoldsUpNoOther(t *testing.T) {
	l := newLab(t)
	chart := make(chan struct{})
	l.git = fakeGit{commits: []string{"c2"}, differs: true, slow: map[string]chan struct{}{"web": chart}}
	l.detector = l.newDetector(func(c *drift.Config) { c.Workers, c.GitPatience, c.Patience = 1, 50*time.Millisecond, time.Nanosecond })
	for _, app := range []string{"web", "db"} {
		l.app(app)
		l.deploy(app, "d-"+app, "c1", deploy.Success, object(app, nil))
	}
	l.evaluate("c2", "db")
	l.pass(time.Second)
	l.cluster().write("web", taken)
	l.cluster().differ("web", greeting)
	l.run()
	l.await("db", "OUT_OF_SYNC 1 commit not deployed")
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	want := "render commits c1 and c2: it waits for chart https://charts.example.com/nginx-1.2.3.tgz"
	if r := l.judge("web"); !strings.Contains(r.Incomplete, want) {
		t.Errorf("the report is incomplete because %q, want %q", r.Incomplete, want)
	}
	asked := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.git.asked
	}
	if n := asked(); n != 2 {
		t.Errorf("Git was asked %d times, want once for each application", n)
	}
	close(chart)
	for end := time.Now().Add(3 * time.Minute); len(l.judge("web").Undeployed) == 0; {
		if time.Now().After(end) {
			t.Fatal("the commits that are not deployed are not reported")
		}
	}
}

// TestDriftIsJudgedAgainstTheHold: the commit that an application is held at takes the
// place of the head.
func TestDriftIsJudgedAgainstTheHold(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.deploy("web", "d2", "c2", deploy.Success, object("a", nil))
	l.git = fakeGit{differs: true}
	d, err := l.store.Deployment(t.Context(), "d1")
	if err != nil {
		t.Fatal(err)
	}
	d.ID, d.Status, d.Stages, d.CompletedAt, d.Trigger.Kind = "d3", deploy.Pending, nil, time.Time{}, deploy.OnCommand
	if _, err := l.store.CreateDeployment(t.Context(), store.NewDeployment{
		Deployment: d, Evaluated: "c2", Hold: &deploy.Hold{Commit: d.Trigger.Commit, By: "jane", Head: "c2"},
	}); err != nil {
		t.Fatal(err)
	}
	l.start("d3")
	l.end("web", "d3", deploy.Success, object("a", nil))
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.deploy("web", "d4", "c3", deploy.Success, object("a", nil)) // a new commit
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.evaluate("c4")
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC The head of the branch is not deployed")
}
