package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRestart: an interrupted stage is run again with Resumed set and its saved
// metadata, and ends once.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*env){"shutdown": (*env).shutdown, "crash": (*env).crash} {
		for _, stage := range []string{deploy.StageK8sSync, "TWO", deploy.StageRollback} {
			t.Run(name+" in "+stage, func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					if stage == deploy.StageRollback {
						e.executors["TWO"] = fail("no")
					}
					var saved string
					e.executors[stage] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
						if run.Resumed {
							saved = run.Stage.Metadata["intent"]
							return succeed(ctx, run)
						}
						if err := run.SaveMetadata(ctx, map[string]string{"intent": "to apply"}); err != nil {
							t.Error(err)
						}
						return hang(ctx, run)
					})
					e.start()
					e.planned("d")
					synctest.Wait()
					end(e)
					e.start()
					synctest.Wait()
					ran, status := []string{"d/one", "d/one*", "d/two"}, deploy.Success
					switch stage {
					case "TWO":
						ran = []string{"d/one", "d/two", "d/two*"}
					case deploy.StageRollback:
						ran, status = []string{"d/one", "d/two", "d/back", "d/back*"}, deploy.Failure
					}
					if got := e.get("d").Status; got != status {
						t.Errorf("the deployment is %s, want %s", got, status)
					}
					if diff := cmp.Diff(ran, e.ran()); diff != "" {
						t.Errorf("executed (-want +got):\n%s", diff)
					}
					if saved != "to apply" {
						t.Errorf("the second run found %q saved by the first", saved)
					}
					e.wantLegal("d")
				})
			})
		}
	}
}

// TestTheStoreIsAway: a stage that could not use the store has not ended. It is resumed, and the deployment
// is not rolled back.
func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"TWO", deploy.StageRollback} {
		t.Run(stage, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				ran, status := []string{"d/one", "d/two", "d/two*", "d/two*"}, deploy.Success
				if stage == deploy.StageRollback {
					e.executors["TWO"] = fail("no")
					ran, status = []string{"d/one", "d/two", "d/back", "d/back*", "d/back*"}, deploy.Failure
				}
				failures := 0
				e.executors[stage] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
					if failures++; failures < 3 {
						return deploy.StageResult{Status: deploy.StageFailure, Reason: "store: write: connection refused", Interrupted: true}
					}
					return succeed(ctx, run)
				})
				e.start()
				e.planned("d")
				time.Sleep(time.Minute)
				synctest.Wait()
				if d := e.get("d"); d.Status != status {
					t.Errorf("the deployment is %s because %q, want %s", d.Status, d.StatusReason, status)
				}
				if diff := cmp.Diff(ran, e.ran()); diff != "" {
					t.Errorf("executed (-want +got):\n%s", diff)
				}
				e.wantLegal("d")
			})
		})
	}
}

// TestTheStoreIsAwayAtTheEnd: a stage that is cancelled while the store is away is resumed, and ends then.
func TestTheStoreIsAwayAtTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, e *env) {
		e.executors["TWO"] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			result := hang(ctx, run)
			result.Interrupted = !run.Resumed
			return result
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		e.askCancel("c", "d")
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := e.get("d"); d.Status != deploy.Cancelled {
			t.Errorf("the deployment is %s because %q", d.Status, d.StatusReason)
		}
		if diff := cmp.Diff([]string{"d/one", "d/two", "d/two*", "d/back"}, e.ran()); diff != "" {
			t.Errorf("executed (-want +got):\n%s", diff)
		}
		e.wantLegal("d")
	})
}

// TestCrashAtEveryWrite kills the agent at each write of a deployment's life in turn.
// After the restart every deployment ends as it would have without the crash, and no
// stage ends twice.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	whole := func(e *env) { e.planned("d") }
	cases := map[string]struct {
		two   executor
		setUp func(*env)
		want  deploy.Status
		never string // the stage that must not run
	}{
		"of a success":   {two: succeed, setUp: whole, want: deploy.Success},
		"of a rollback":  {two: fail("no"), setUp: whole, want: deploy.Failure},
		"of a cancelled": {two: hang, setUp: (*env).cancelledInOne, want: deploy.Cancelled, never: "two"},
		"of skipped stages": {two: succeed, want: deploy.Success, never: "two", setUp: func(e *env) {
			e.planned("d", func(p *deploy.Plan) {
				p.Stages[0].Name = deploy.StageWait
				p.Stages[1].SkipOn = json.RawMessage(`{"paths":["docs"]}`)
			})
			e.askSkip("s", "d", "one")
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for at, crashed := 1, true; crashed; at++ {
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					inBubble(t, func(t *testing.T, e *env) {
						e.changes = changed("docs/a")
						e.executors["TWO"], e.executors[deploy.StageWait] = c.two, executor(hang)
						c.setUp(e)
						crashed = e.crashAt(at)
						e.start()
						time.Sleep(time.Minute)
						synctest.Wait()
						if d := e.get("d"); d.Status != c.want {
							t.Errorf("the deployment is %s because %q, want %s", d.Status, d.StatusReason, c.want)
						}
						if never := "d/" + c.never; slices.ContainsFunc(e.ran(), func(ran string) bool { return strings.TrimSuffix(ran, "*") == never }) {
							t.Errorf("executed %v", e.ran())
						}
						e.wantLegal("d")
						open, err := e.store.OpenCommands(t.Context())
						if err != nil || len(open) > 0 {
							t.Errorf("open commands: %v %v", open, err)
						}
					})
				})
			}
		})
	}
}

// cancelledInOne stores a deployment that runs its first stage, and a cancel of it.
func (e *env) cancelledInOne() {
	e.t.Helper()
	e.planned("d")
	e.askCancel("c", "d")
	e.update("d", func(d *deploy.Deployment) error {
		if err := d.Start(time.Now()); err != nil {
			return err
		}
		return d.StartStage("one", time.Now())
	})
}

// crashAt runs the scheduler until it reads the store's clock for the nth time, which
// it does once per write. It reports whether the crash happened.
func (e *env) crashAt(n int) bool {
	e.t.Helper()
	if err := e.store.Close(); err != nil {
		e.t.Fatal(err)
	}
	var reads atomic.Int64
	e.storeNow = func() time.Time {
		if reads.Add(1) == int64(n) {
			_ = e.store.Close() // the write that is about to begin fails
		}
		return time.Now()
	}
	e.open()
	e.start()
	time.Sleep(time.Minute)
	synctest.Wait()
	e.storeNow = time.Now
	e.crash()
	return reads.Load() >= int64(n)
}

// TestOldReadingStartsNothing: a deployment that ends between the scheduler's read and
// the start of its run is not run again.
func TestOldReadingStartsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = lasting(time.Second)
		e.start()
		e.planned("d")
		synctest.Wait()
		old := e.get("d")
		time.Sleep(time.Minute)
		e.shutdown()
		if old.Status != deploy.Running || e.get("d").Status != deploy.Success {
			t.Fatalf("the deployment went from %s to %s", old.Status, e.get("d").Status)
		}
		before := len(e.ran())
		s := New(Config{Store: e.store, Executors: map[string]Executor{deploy.StageK8sSync: executor(func(context.Context, deploy.StageRun) deploy.StageResult {
			t.Error("the stage was run again")
			return deploy.StageResult{Status: deploy.StageFailure}
		})}, Limits: func() Limits { return Limits{} }, Now: time.Now, Logger: e.logger})
		s.updateWaiting(old)
		for _, r := range s.startable(t.Context()) {
			s.drive(r)
		}
		if len(e.ran()) != before {
			t.Errorf("executed %v", e.ran())
		}
		e.wantEnd("d", deploy.Success, "Deployment completed successfully")
	})
}

// wantLegal fails if the deployment's log contains an illegal transition or a stage
// that ended more than once.
func (e *env) wantLegal(id string) {
	e.t.Helper()
	if err := e.checkLegal(id); err != nil {
		e.t.Error(err)
	}
}

func (e *env) checkLegal(id string) error {
	log, err := e.store.Transitions(context.Background(), id)
	if err != nil {
		return err
	}
	at := map[string]string{}
	for _, m := range log {
		if m.From != at[m.StageID] {
			return fmt.Errorf("%s %s: a move from %q where it was %q", id, m.StageID, m.From, at[m.StageID])
		}
		if m.StageID == "" {
			err = deploy.CheckTransition(deploy.Status(m.From), deploy.Status(m.To))
		} else {
			err = deploy.CheckStageTransition(deploy.StageStatus(m.From), deploy.StageStatus(m.To))
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", id, m.StageID, err)
		}
		at[m.StageID] = m.To
	}
	d, err := e.store.Deployment(context.Background(), id)
	if err != nil {
		return err
	}
	for _, s := range d.Stages {
		if d.Status.Completed() && s.Status == deploy.StageRunning {
			return fmt.Errorf("%s is %s and its stage %s still runs", id, d.Status, s.ID)
		}
	}
	return nil
}
