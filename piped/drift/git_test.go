package drift_test

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/store"
)

// TestInvalidConfigEndsNoPeriod: with an invalid head earlier commits stay undeployed,
// and the application does not become SYNCED.
func TestInvalidConfigEndsNoPeriod(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.git = fakeGit{commits: []string{"c2"}, differs: true}
	e.evaluate("c2")
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
	for _, state := range []deploy.SyncStatus{deploy.SyncInvalidConfig, deploy.SyncUnknown} {
		if _, err := e.store.SetSyncState(t.Context(), "web", deploy.SyncState{Status: state, ShortReason: "the trigger says so"}); err != nil {
			t.Fatal(err)
		}
		if r := e.report("web"); len(r.Undeployed) != 1 || r.End != "" {
			t.Errorf("with %s the report is %+v", state, r)
		}
		e.wantPeriods("period-1 ")
	}
	e.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
}

// TestACommitThatFailedIsNotHealed: a state whose deployment failed is reported, and
// self-healing retries it only after Git changes.
func TestACommitThatFailedIsNotHealed(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.deploy("web", "d2", "c2", deploy.Failure)
	e.git = fakeGit{commits: []string{"c2"}, differs: true}
	for _, c := range []struct {
		head   string
		healed bool
	}{{"c2", false}, {"c3", true}} {
		e.evaluate(c.head)
		e.report("web")
		e.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
		app, err := e.store.Application(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		if app.Sync.LeftOver == c.healed {
			t.Errorf("at %s it is left over: %v", c.head, app.Sync.LeftOver)
		}
	}
}

// TestSlowRenderingHoldsUpNoOther: while the chart of an application is not available,
// other applications and its live objects are compared; its report says what it waits
// for. When the chart is available, the application is evaluated again.
func TestSlowRenderingHoldsUpNoOther(t *testing.T) {
	e := newEnv(t)
	chart := make(chan struct{})
	e.git = fakeGit{commits: []string{"c2"}, differs: true, slow: map[string]chan struct{}{"web": chart}}
	e.detector = e.newDetector(func(c *drift.Config) { c.Workers, c.GitPatience, c.Patience = 1, 50*time.Millisecond, time.Nanosecond })
	for _, app := range []string{"web", "db"} {
		e.app(app)
		e.deploy(app, "d-"+app, "c1", deploy.Success, object(app, nil))
	}
	e.evaluate("c2", "db")
	e.pass(time.Second)
	e.cluster().write("web", taken)
	e.cluster().differ("web", greeting)
	e.run()
	e.await("db", "OUT_OF_SYNC 1 commit not deployed")
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	want := "render commits c1 and c2: it waits for chart https://charts.example.com/nginx-1.2.3.tgz"
	if r := e.report("web"); !strings.Contains(r.Incomplete, want) {
		t.Errorf("the report is incomplete because %q, want %q", r.Incomplete, want)
	}
	asked := func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.git.asked
	}
	if n := asked(); n != 2 {
		t.Errorf("Git was asked %d times, want once for each application", n)
	}
	close(chart)
	for end := time.Now().Add(10 * time.Minute); len(e.report("web").Undeployed) == 0; {
		if time.Now().After(end) {
			t.Fatal("the commits that are not deployed are not reported")
		}
	}
}

// TestDriftFollowsTheHold: the commit of a hold replaces the head.
func TestDriftFollowsTheHold(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.deploy("web", "d2", "c2", deploy.Success, object("a", nil))
	e.git = fakeGit{differs: true}
	d, err := e.store.Deployment(t.Context(), "d1")
	if err != nil {
		t.Fatal(err)
	}
	d.ID, d.Status, d.Stages, d.CompletedAt, d.Trigger.Kind = "d3", deploy.Pending, nil, time.Time{}, deploy.OnCommand
	if _, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{
		Deployment: d, Evaluated: "c2", Hold: &deploy.Hold{Commit: d.Trigger.Commit, By: "jane", Head: "c2"},
	}); err != nil {
		t.Fatal(err)
	}
	e.start("d3")
	e.end("web", "d3", deploy.Success, object("a", nil))
	e.report("web")
	e.wantState("web", "SYNCED")
	e.deploy("web", "d4", "c3", deploy.Success, object("a", nil)) // a new commit
	e.report("web")
	e.wantState("web", "SYNCED")
	e.evaluate("c4")
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC The head of the branch is not deployed")
}
