package drift_test

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
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
