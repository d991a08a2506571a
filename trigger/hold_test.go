package trigger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// newHoldEnv begins with an application that heals itself and has deployed two commits,
// and returns the first of them.
func newHoldEnv(t *testing.T, edit ...func(*env, *Config)) (*env, string) {
	t.Helper()
	l := newDriftEnv(t, edit...)
	first := l.upstream.Head()
	l.push("bad", map[string]string{"web/d.yaml": "2"})
	l.finish("web", deploy.Success)
	return l, first
}

// ask asks for a sync of the application web and polls.
func (l *env) ask(edit func(*deploy.Command)) deploy.Command {
	l.t.Helper()
	c := deploy.Command{ID: l.newID(), Type: deploy.CommandSync, ApplicationID: appID("web"), Commander: "jane", Strategy: deploy.StrategyQuickSync}
	if edit != nil {
		edit(&c)
	}
	_, err := l.store.CreateCommand(l.t.Context(), c)
	must(l.t, err)
	l.poll()
	return l.command(c.ID)
}

// rollBack asks for a rollback of the application web to a commit.
func (l *env) rollBack(commit string, edit ...func(*deploy.Command)) deploy.Command {
	l.t.Helper()
	return l.ask(func(c *deploy.Command) {
		c.Commit, c.Reason, c.Metadata = commit, "the page is broken", map[string]string{deploy.MetaRollbackTo: "earlier"}
		for _, f := range edit {
			f(c)
		}
	})
}

// TestRollbackHolds: after a rollback self-healing restores the commit that was gone back
// to, until a new commit to the application, or a sync, ends that.
func TestRollbackHolds(t *testing.T) {
	type files = map[string]string
	cases := []struct {
		name string
		play func(l *env, first string)
		want []string // deployments after the two commits
		held bool     // at the end
	}{
		{"drift is healed with the commit that it is held at", func(l *env, first string) {
			l.drift("web")
		}, []string{"ON_COMMAND begin SUCCESS", "ON_OUT_OF_SYNC begin PENDING"}, true},
		{"a healed application stays held", func(l *env, first string) {
			l.drift("web")
			l.finish("web", deploy.Success)
			l.drift("web")
		}, []string{"ON_COMMAND begin SUCCESS", "ON_OUT_OF_SYNC begin SUCCESS", "ON_OUT_OF_SYNC begin PENDING"}, true},
		{"a restart changes nothing", func(l *env, first string) {
			l.restart()
			l.drift("web")
		}, []string{"ON_COMMAND begin SUCCESS", "ON_OUT_OF_SYNC begin PENDING"}, true},
		{"a commit elsewhere does not end it", func(l *env, first string) {
			l.push("elsewhere", files{"x": "1"})
			l.drift("web")
		}, []string{"ON_COMMAND begin SUCCESS", "ON_OUT_OF_SYNC begin PENDING"}, true},
		{"a commit to the application ends it", func(l *env, first string) {
			l.push("repair", files{"web/d.yaml": "3"})
		}, []string{"ON_COMMAND begin SUCCESS", "ON_COMMIT repair PENDING"}, false},
		{"a sync ends it", func(l *env, first string) {
			l.ask(nil)
		}, []string{"ON_COMMAND begin SUCCESS", "ON_COMMAND bad PENDING"}, false},
		{"a chain does not end it", func(l *env, first string) {
			l.ask(func(c *deploy.Command) { c.Type, c.ChainID = deploy.CommandChainSync, "chain" })
		}, []string{"ON_COMMAND begin SUCCESS"}, true}, // this application allows no chain
		{"a deleted application that is added again is not held", func(l *env, first string) {
			must(l.t, l.store.DeleteApplication(l.t.Context(), appID("web")))
		}, []string{"ON_COMMAND begin SUCCESS"}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, first := newHoldEnv(t)
			asked := l.rollBack(first)
			l.finish("web", deploy.Success)
			hold := l.app("web").Hold
			if hold == nil || hold.Commit.Hash != first || hold.By != "jane" || hold.Reason != "the page is broken" || hold.Since.IsZero() ||
				hold.DeploymentID != asked.Metadata[deploy.MetaTriggeredDeployment] {
				t.Fatalf("after the rollback the application is held so: %+v", hold)
			}
			c.play(l, first)
			var got []string
			for _, d := range l.all("web")[2:] {
				got = append(got, string(d.Trigger.Kind)+" "+d.Trigger.Commit.Message+" "+string(d.Status))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
			if held := l.app("web").Hold != nil; held != c.held {
				t.Errorf("held at the end: %v, want %v", held, c.held)
			}
		})
	}
}

// TestChainDeploysTheHeldCommit: a block of a chain deploys the commit that the
// application is held at, for that is what should run.
func TestChainDeploysTheHeldCommit(t *testing.T) {
	l := newEnv(t)
	on := "  trigger: {onChain: {disabled: false}}"
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", on)})
	l.finish("web", deploy.Success)
	first := l.upstream.Head()
	l.push("bad", map[string]string{"web/d.yaml": "2"})
	l.finish("web", deploy.Success)
	l.rollBack(first)
	l.finish("web", deploy.Success)
	c := l.ask(func(c *deploy.Command) { c.Type, c.ChainID, c.ChainBlock = deploy.CommandChainSync, "chain", 1 })
	d, err := l.store.Deployment(t.Context(), c.Metadata[deploy.MetaTriggeredDeployment])
	must(t, err)
	if d.Trigger.Commit.Hash != first || l.app("web").HeldAt() != first {
		t.Errorf("the chain deploys %s, the application is held at %s, want %s for both", d.Trigger.Commit.Hash, l.app("web").HeldAt(), first)
	}
}

// TestSyncToAnEarlierCommitHolds: without a hold, self-healing would undo a deployment of
// what later commits have changed since. A sync to a commit that nothing has changed since
// is one to the head.
func TestSyncToAnEarlierCommitHolds(t *testing.T) {
	for _, kind := range []deploy.CommandType{deploy.CommandSync, deploy.CommandRetry} {
		l, first := newHoldEnv(t)
		bad := l.upstream.Head()
		l.push("elsewhere", map[string]string{"x": "1"})
		l.ask(func(c *deploy.Command) { c.Type, c.Commit, c.DeploymentID = kind, first, "repeated" })
		if got := l.app("web").HeldAt(); got != first {
			t.Errorf("%s of an earlier commit: held at %q, want %s", kind, got, first)
		}
		made := l.all("web")
		if got, want := made[len(made)-1].Trigger.RetryOf, map[deploy.CommandType]string{deploy.CommandRetry: "repeated"}[kind]; got != want {
			t.Errorf("%s: the deployment repeats %q, want %q", kind, got, want)
		}
		l.finish("web", deploy.Success)
		l.ask(func(c *deploy.Command) { c.Type, c.Commit = kind, bad })
		if hold := l.app("web").Hold; hold != nil {
			t.Errorf("%s of the last commit that changed the application: %s", kind, hold)
		}
	}
}

// TestCancelledRollback: the hold goes with a rollback that was cancelled, and the one
// before it returns. One that failed stays: nothing else may be deployed by itself.
func TestCancelledRollback(t *testing.T) {
	l, first := newHoldEnv(t)
	l.rollBack(first)
	l.finish("web", deploy.Cancelled)
	if hold := l.app("web").Hold; hold != nil {
		t.Fatalf("after a cancelled rollback: %s", hold)
	}
	l.rollBack(first)
	l.finish("web", deploy.Failure)
	if got := l.app("web").HeldAt(); got != first {
		t.Fatalf("after a failed rollback: held at %q", got)
	}
	l.rollBack(l.upstream.Head())
	l.finish("web", deploy.Cancelled)
	if got := l.app("web").HeldAt(); got != first {
		t.Errorf("after a cancelled rollback that replaced one: held at %q, want %s", got, first)
	}
}

// TestBaseOfAHold: what was not evaluated when the application was rolled
// back is older than the rollback.
func TestBaseOfAHold(t *testing.T) {
	h := &deploy.Hold{Head: "head", Evaluated: "before"}
	for evaluated, want := range map[string]string{"before": "head", "later": "later"} {
		if got := h.Base(evaluated); got != want {
			t.Errorf("evaluated %s: base %s, want %s", evaluated, got, want)
		}
	}
	if got := (*deploy.Hold)(nil).Base("x"); got != "x" {
		t.Errorf("without a hold: %s", got)
	}
}

// TestRollbackGoesFirst: what waits or runs for the application is cancelled, for that
// reason; a running deployment that would roll back to the same commit does not.
func TestRollbackGoesFirst(t *testing.T) {
	cancels := func(l *env) (out []deploy.Command) {
		open, err := l.store.OpenCommands(l.t.Context(), deploy.CommandCancel)
		must(l.t, err)
		return open
	}
	runs := func(l *env, plan deploy.Plan) {
		l.t.Helper()
		ds := l.all("web")
		for _, move := range []func(*deploy.Deployment) error{
			func(d *deploy.Deployment) error { return d.Plan(plan, l.clock()) },
			func(d *deploy.Deployment) error { return d.Start(l.clock()) },
		} {
			_, err := l.store.UpdateDeployment(l.t.Context(), ds[len(ds)-1].ID, move)
			must(l.t, err)
		}
	}
	back := deploy.Stage{ID: deploy.RollbackID, Name: deploy.StageRollback, Rollback: true}
	script := deploy.Stage{ID: deploy.ScriptRollbackID + "-x", Name: deploy.StageScriptRunRollback, Rollback: true}
	t.Run("what waits", func(t *testing.T) {
		l, first := newHoldEnv(t)
		l.ask(nil)
		id := l.rollBack(first).Metadata[deploy.MetaTriggeredDeployment]
		waited := l.all("web")[2]
		if waited.Status != deploy.Cancelled || !strings.Contains(waited.StatusReason, "jane, who goes back to commit "+first[:7]+" with deployment "+id) {
			t.Errorf("the sync that waited is %s: %s", waited.Status, waited.StatusReason)
		}
	})
	for name, c := range map[string]struct {
		to     func(first, bad string) string
		stages []deploy.Stage
		skip   bool
	}{
		"what runs, to where it would roll back":                  {func(first, bad string) string { return first }, []deploy.Stage{back}, true},
		"what runs, to where it would roll back, after a script":  {func(first, bad string) string { return first }, []deploy.Stage{back, script}, false},
		"what runs, to another commit than it would roll back to": {func(first, bad string) string { return bad }, []deploy.Stage{back}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, first := newHoldEnv(t)
			bad := l.upstream.Head()
			l.push("worse", map[string]string{"web/d.yaml": "3"})
			runs(l, deploy.Plan{RunningCommit: first, Stages: c.stages})
			l.rollBack(c.to(first, bad))
			got := cancels(l)
			if len(got) != 1 || got[0].DeploymentID != l.all("web")[2].ID || got[0].ForceNoRollback != c.skip || !strings.HasPrefix(got[0].Commander, "jane, who goes back") {
				t.Errorf("cancels: %+v, want one of the running deployment, its rollback skipped: %v", got, c.skip)
			}
		})
	}
	t.Run("not with wait-for-running", func(t *testing.T) {
		l, first := newHoldEnv(t)
		l.push("worse", map[string]string{"web/d.yaml": "3"})
		runs(l, deploy.Plan{RunningCommit: first, Stages: []deploy.Stage{back}})
		l.ask(nil)
		l.rollBack(first, func(c *deploy.Command) { c.WaitForRunning = true })
		if waited := l.all("web")[3]; len(cancels(l)) > 0 || waited.Status != deploy.Pending {
			t.Errorf("cancels %v, the sync that waited is %s: %s", cancels(l), waited.Status, waited.StatusReason)
		}
	})
}

// TestHealIsDecidedWithTheHold: a self-heal that was decided before a rollback, or before
// the end of a hold, is not made.
func TestHealIsDecidedWithTheHold(t *testing.T) {
	l, first := newHoldEnv(t)
	none := ""
	heal := func(held *string) error {
		d := l.all("web")[0].Clone()
		d.ID, d.Status, d.StatusReason, d.Stages, d.CompletedAt = l.newID(), deploy.Pending, "", nil, d.CompletedAt.Truncate(0)
		d.Trigger.Kind = deploy.OnOutOfSync
		_, err := l.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d, Held: held})
		return err
	}
	l.rollBack(first)
	if err := heal(&none); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("decided before the rollback: %v, want a conflict", err)
	}
	l.finish("web", deploy.Success)
	l.ask(nil)
	if err := heal(&first); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("decided before the end of the hold: %v, want a conflict", err)
	}
	must(t, heal(&none))
}
