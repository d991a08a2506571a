package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestCancelBeforeTheStart: a waiting deployment is cancelled at once and never runs.
func TestCancelBeforeTheStart(t *testing.T) {
	for _, planned := range []bool{false, true} {
		name := map[bool]string{false: "PENDING", true: "PLANNED"}[planned]
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync] = executor(hang)
				e.limits.Deployments = 1
				e.start()
				e.planned("first")
				synctest.Wait()
				e.pending("d", "app")
				if planned {
					e.plan("d")
				}
				e.askCancel("c", "d")
				synctest.Wait()
				e.wantEnd("d", deploy.Cancelled, "Cancelled by ann before it started")
				e.wantAnswer("c", deploy.CommandSucceeded, "")
				e.shutdown()
				if diff := cmp.Diff([]string{"first/one"}, e.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelWhileRunning: the stage is stopped with StopCancelled, and its deployment
// is rolled back unless the user decided otherwise.
func TestCancelWhileRunning(t *testing.T) {
	cases := []struct {
		name    string
		command func(*deploy.Command)
		want    string
		runs    []string
	}{
		{"with rollback", func(*deploy.Command) {}, "Cancelled by ann; rolled back to commit beef012", []string{"d/one", "d/back"}},
		{"without rollback", func(c *deploy.Command) { c.ForceNoRollback = true }, "Cancelled by ann; not rolled back, as asked", []string{"d/one"}},
		{"for a newer one", func(c *deploy.Command) { c.ForceNoRollback, c.SupersededBy = true, "newer" }, "Cancelled by ann; not rolled back, as asked", []string{"d/one"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync] = executor(hang)
				e.start()
				e.planned("d")
				synctest.Wait()
				e.askCancel("c", "d", c.command)
				synctest.Wait()
				e.wantAnswer("c", deploy.CommandSucceeded, "")
				e.wantEnd("d", deploy.Cancelled, c.want)
				d := e.get("d")
				if by := map[string]string{"for a newer one": "newer"}[c.name]; d.SupersededBy != by {
					t.Errorf("superseded by %q, want %q", d.SupersededBy, by)
				}
				stage := d.Stage("one")
				if want := "cancelled: stopped: cancelled"; stage.Status != deploy.StageCancelled || stage.StatusReason != want {
					t.Errorf("the stage is %s because %q, want CANCELLED because %q", stage.Status, stage.StatusReason, want)
				}
				if diff := cmp.Diff(c.runs, e.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelOptions: the options of a cancel override the application's rollback
// configuration.
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
		{name: "forced, foreign change", plan: func(*deploy.Plan) {}, foreign: true, command: force,
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
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
					result := hang(ctx, run)
					result.NoRollback = c.foreign
					return result
				})
				e.start()
				e.planned("d", func(p *deploy.Plan) { p.RunningDeploymentID = "before" }, c.plan)
				synctest.Wait()
				e.askCancel("c", "d", c.command)
				synctest.Wait()
				if c.refused != "" {
					e.wantAnswer("c", deploy.CommandFailed, c.refused)
					e.wantEnd("d", deploy.Running, "The deployment is running")
					return
				}
				e.wantAnswer("c", deploy.CommandSucceeded, "")
				e.wantEnd("d", deploy.Cancelled, c.want)
			})
		})
	}
}

// TestCancelOfAStageThatIsDone: an accepted cancel takes effect even if the stage
// succeeds concurrently.
func TestCancelOfAStageThatIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors["TWO"] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			<-ctx.Done()
			return succeed(ctx, run)
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		e.askCancel("c", "d")
		synctest.Wait()
		e.wantAnswer("c", deploy.CommandSucceeded, "")
		e.wantEnd("d", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
	})
}

// TestCancelKeepsForeignChange: NoRollback also applies to a cancelled stage.
func TestCancelKeepsForeignChange(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, _ deploy.StageRun) deploy.StageResult {
			<-ctx.Done()
			return deploy.StageResult{Status: deploy.StageFailure, Reason: "another writer changed it", NoRollback: true}
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		e.askCancel("c", "d")
		synctest.Wait()
		e.wantEnd("d", deploy.Cancelled, "Cancelled by ann")
	})
}

// TestCancelTooLate: a cancel is rejected with a reason after the forward stages, and
// for a missing deployment.
func TestCancelTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync], e.executors[deploy.StageRollback] = fail("no"), lasting(time.Minute)
		e.start()
		e.planned("d")
		synctest.Wait()
		e.askCancel("rolling back", "d")
		e.askCancel("unknown", "missing")
		synctest.Wait()
		e.wantAnswer("rolling back", deploy.CommandFailed, "the deployment is rolling back already and cannot be cancelled: wait for its end")
		e.wantAnswer("unknown", deploy.CommandFailed, "there is no deployment missing")
		time.Sleep(time.Minute)
		synctest.Wait()
		e.wantEnd("d", deploy.Failure, "Stage K8S_SYNC failed: no; rolled back to commit beef012")
		e.askCancel("ended", "d")
		synctest.Wait()
		e.wantAnswer("ended", deploy.CommandFailed, "the deployment is FAILURE already and cannot be cancelled")
	})
}

// TestFirstCancelDecides: a second cancel does not change the first. It is accepted if
// it equals the first, else rejected.
func TestFirstCancelDecides(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			<-ctx.Done()
			time.Sleep(time.Minute) // it takes its time to stop
			return hang(ctx, run)
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		e.askCancel("first", "d")
		synctest.Wait()
		e.askCancel("second", "d", func(c *deploy.Command) { c.Commander = "ben" })
		e.askCancel("third", "d", func(c *deploy.Command) { c.Commander, c.ForceNoRollback = "ben", true })
		synctest.Wait()
		e.wantAnswer("first", deploy.CommandSucceeded, "")
		e.wantAnswer("second", deploy.CommandSucceeded, "")
		e.wantAnswer("third", deploy.CommandFailed, "ann has cancelled the deployment already and decided otherwise about the rollback: the first cancel counts")
		time.Sleep(time.Minute)
		synctest.Wait()
		e.wantEnd("d", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
	})
}

// TestCancelSurvives: an accepted cancel survives a shutdown and a crash of the agent
// before the stage has stopped.
func TestCancelSurvives(t *testing.T) {
	for name, end := range map[string]func(*env){"a shutdown": (*env).shutdown, "a crash": (*env).crash} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync] = executor(slowToStop)
				e.start()
				e.planned("d")
				synctest.Wait()
				e.askCancel("c", "d")
				synctest.Wait()
				e.wantAnswer("c", deploy.CommandSucceeded, "")
				end(e)
				if got := e.get("d").Status; got != deploy.Running {
					t.Fatalf("the deployment is %s, the test wants it RUNNING", got)
				}
				e.start()
				synctest.Wait()
				e.wantEnd("d", deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012")
				if diff := cmp.Diff([]string{"d/one", "d/one*", "d/back"}, e.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCancelAnsweredAfterACrash: after a crash between storing the cancel and answering
// the command, the command is answered with success.
func TestCancelAnsweredAfterACrash(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.pending("d", "app")
		e.askCancel("c", "d")
		command, err := e.store.Command(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		e.update("d", func(d *deploy.Deployment) error { return acceptCancel(d, command, time.Now()) })
		e.wantEnd("d", deploy.Cancelled, "Cancelled by ann before it started")
		e.start()
		synctest.Wait()
		e.wantAnswer("c", deploy.CommandSucceeded, "")
	})
}
