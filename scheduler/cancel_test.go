package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestCancelBeforeTheStart: a deployment that waits is cancelled at once, and
// never runs.
func TestCancelBeforeTheStart(t *testing.T) {
	for _, planned := range []bool{false, true} {
		name := map[bool]string{false: "PENDING", true: "PLANNED"}[planned]
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageK8sSync] = executor(hang)
				l.limits.Deployments = 1
				l.start()
				l.planned("first")
				synctest.Wait()
				l.pending("d", "app")
				if planned {
					l.plan("d")
				}
				l.askCancel("c", "d")
				synctest.Wait()
				l.wantEnd("d", deploy.Cancelled, "Cancelled by ann before it started")
				l.wantAnswer("c", deploy.CommandSucceeded, "")
				l.shutdown()
				if diff := cmp.Diff([]string{"first/one"}, l.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelWhileRunning: the stage is told why it stops, and what ran is rolled
// back unless the person decided otherwise.
func TestCancelWhileRunning(t *testing.T) {
	cases := []struct {
		name    string
		command func(*deploy.Command)
		want    string
		runs    []string
	}{
		{"with rollback", func(*deploy.Command) {}, "Cancelled by ann; rolled back to commit beef012", []string{"d/one", "d/back"}},
		{"without rollback", func(c *deploy.Command) { c.ForceNoRollback = true }, "Cancelled by ann; not rolled back, as asked", []string{"d/one"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageK8sSync] = executor(hang)
				l.start()
				l.planned("d")
				synctest.Wait()
				l.askCancel("c", "d", c.command)
				synctest.Wait()
				l.wantAnswer("c", deploy.CommandSucceeded, "")
				l.wantEnd("d", deploy.Cancelled, c.want)
				d := l.get("d")
				stage := d.Stage("one")
				if want := "cancelled: told to stop: cancelled"; stage.Status != deploy.StageCancelled || stage.StatusReason != want {
					t.Errorf("the stage is %s because %q, want CANCELLED because %q", stage.Status, stage.StatusReason, want)
				}
				if diff := cmp.Diff(c.runs, l.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelOptions states what a cancel's options do, whatever the application's
// configuration says about rollbacks.
func TestCancelOptions(t *testing.T) {
	t.Parallel()
	force := func(c *deploy.Command) { c.ForceRollback = true }
	both := func(c *deploy.Command) { c.ForceRollback, c.ForceNoRollback = true, true }
	byHand := "; not rolled back, because automatic rollback is off; to go back to commit beef012: pipectl application rollback --app-id=app-d --to=before"
	cases := []struct {
		name    string
		plan    func(*deploy.Plan)
		foreign bool // the stage forbids its rollback
		command func(*deploy.Command)
		refused string
		want    string
	}{
		{name: "forced", plan: func(*deploy.Plan) {}, command: force, want: "Cancelled by ann; rolled back to commit beef012"},
		{name: "forced, automatic rollback is off", plan: func(p *deploy.Plan) { p.NoAutoRollback = true }, command: force,
			want: "Cancelled by ann; rolled back to commit beef012"},
		{name: "forced, somebody else's change", plan: func(*deploy.Plan) {}, foreign: true, command: force,
			want: "Cancelled by ann; rolled back to commit beef012"},
		{name: "without options, automatic rollback is off", plan: func(p *deploy.Plan) { p.NoAutoRollback = true }, command: func(*deploy.Command) {},
			want: "Cancelled by ann" + byHand},
		{name: "forced, nothing to roll back", plan: func(p *deploy.Plan) { p.Stages = p.Stages[:2] }, command: force,
			refused: "the deployment has nothing to roll back: cancel it without forcing a rollback"},
		{name: "both", plan: func(*deploy.Plan) {}, command: both,
			refused: "a cancel cannot both force and forbid the rollback: give one of the two"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
					result := hang(ctx, run)
					result.NoRollback = c.foreign
					return result
				})
				l.start()
				l.planned("d", func(p *deploy.Plan) { p.RunningDeploymentID = "before" }, c.plan)
				synctest.Wait()
				l.askCancel("c", "d", c.command)
				synctest.Wait()
				if c.refused != "" {
					l.wantAnswer("c", deploy.CommandFailed, c.refused)
					l.wantEnd("d", deploy.Running, "The deployment is running")
					return
				}
				l.wantAnswer("c", deploy.CommandSucceeded, "")
				l.wantEnd("d", deploy.Cancelled, c.want)
			})
		})
	}
}

// TestCancelOfAStageThatIsDone: a cancel that was accepted holds, even if the
// stage succeeds before it notices.
func TestCancelOfAStageThatIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors["TWO"] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			<-ctx.Done()
			return succeed(ctx, run)
		})
		l.start()
		l.planned("d")
		synctest.Wait()
		l.askCancel("c", "d")
		synctest.Wait()
		l.wantAnswer("c", deploy.CommandSucceeded, "")
		l.wantEnd("d", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
	})
}

// TestCancelUndoesNobodyElsesChange: what forbids the rollback of a failed stage
// forbids it for a cancelled one.
func TestCancelUndoesNobodyElsesChange(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, _ deploy.StageRun) deploy.StageResult {
			<-ctx.Done()
			return deploy.StageResult{Status: deploy.StageFailure, Reason: "somebody else changed it", NoRollback: true}
		})
		l.start()
		l.planned("d")
		synctest.Wait()
		l.askCancel("c", "d")
		synctest.Wait()
		l.wantEnd("d", deploy.Cancelled, "Cancelled by ann")
	})
}

// TestCancelTooLate: a cancel is refused with a reason once the forward part is
// over, and for a deployment that does not exist.
func TestCancelTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors[deploy.StageK8sSync], l.executors[deploy.StageRollback] = fail("no"), lasting(time.Minute)
		l.start()
		l.planned("d")
		synctest.Wait()
		l.askCancel("rolling back", "d")
		l.askCancel("unknown", "nobody")
		synctest.Wait()
		l.wantAnswer("rolling back", deploy.CommandFailed, "the deployment is rolling back already and cannot be cancelled: wait for its end")
		l.wantAnswer("unknown", deploy.CommandFailed, "there is no deployment nobody")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantEnd("d", deploy.Failure, "Stage K8S_SYNC failed: no; rolled back to commit beef012")
		l.askCancel("ended", "d")
		synctest.Wait()
		l.wantAnswer("ended", deploy.CommandFailed, "the deployment is FAILURE already and cannot be cancelled")
	})
}

// TestFirstCancelDecides: a second cancel of a deployment changes nothing about
// the first. It is granted if it asks for the same, and else refused.
func TestFirstCancelDecides(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			<-ctx.Done()
			time.Sleep(time.Minute) // it takes its time to stop
			return hang(ctx, run)
		})
		l.start()
		l.planned("d")
		synctest.Wait()
		l.askCancel("first", "d")
		synctest.Wait()
		l.askCancel("second", "d", func(c *deploy.Command) { c.Commander = "ben" })
		l.askCancel("third", "d", func(c *deploy.Command) { c.Commander, c.ForceNoRollback = "ben", true })
		synctest.Wait()
		l.wantAnswer("first", deploy.CommandSucceeded, "")
		l.wantAnswer("second", deploy.CommandSucceeded, "")
		l.wantAnswer("third", deploy.CommandFailed, "ann has cancelled the deployment already and decided otherwise about the rollback: the first cancel counts")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantEnd("d", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
	})
}

// TestCancelSurvives: a cancel that was answered holds when the agent ends, in
// whatever way, before the stage has stopped.
func TestCancelSurvives(t *testing.T) {
	for name, end := range map[string]func(*lab){"a shutdown": (*lab).shutdown, "a crash": (*lab).crash} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageK8sSync] = executor(slowToStop)
				l.start()
				l.planned("d")
				synctest.Wait()
				l.askCancel("c", "d")
				synctest.Wait()
				l.wantAnswer("c", deploy.CommandSucceeded, "")
				end(l)
				if got := l.get("d").Status; got != deploy.Running {
					t.Fatalf("the deployment is %s, the test wants it RUNNING", got)
				}
				l.start()
				synctest.Wait()
				l.wantEnd("d", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
				if diff := cmp.Diff([]string{"d/one", "d/one*", "d/back"}, l.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelAnsweredAfterACrash: a crash between giving the cancel to the
// deployment and answering the command leaves no command refused or open.
func TestCancelAnsweredAfterACrash(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.pending("d", "app")
		l.askCancel("c", "d")
		command, err := l.store.Command(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		l.update("d", func(d *deploy.Deployment) error { return acceptCancel(d, command, time.Now()) })
		l.wantEnd("d", deploy.Cancelled, "Cancelled by ann before it started")
		l.start()
		synctest.Wait()
		l.wantAnswer("c", deploy.CommandSucceeded, "")
	})
}
