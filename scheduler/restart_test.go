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

// TestRestart: a stage in whose middle the agent ends, in whatever way, is run
// again, marked so, with what it had saved, and ends once.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*lab){"shutdown": (*lab).shutdown, "crash": (*lab).crash} {
		for _, stage := range []string{deploy.StageK8sSync, "TWO", deploy.StageRollback} {
			t.Run(name+" in "+stage, func(t *testing.T) {
				inBubble(t, func(t *testing.T, l *lab) {
					if stage == deploy.StageRollback {
						l.executors["TWO"] = fail("no")
					}
					var saved string
					l.executors[stage] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
						if run.Resumed {
							saved = run.Stage.Metadata["intent"]
							return succeed(ctx, run)
						}
						if err := run.SaveMetadata(ctx, map[string]string{"intent": "to apply"}); err != nil {
							t.Error(err)
						}
						return hang(ctx, run)
					})
					l.start()
					l.planned("d")
					synctest.Wait()
					end(l)
					l.start()
					synctest.Wait()
					ran, status := []string{"d/one", "d/one*", "d/two"}, deploy.Success
					switch stage {
					case "TWO":
						ran = []string{"d/one", "d/two", "d/two*"}
					case deploy.StageRollback:
						ran, status = []string{"d/one", "d/two", "d/back", "d/back*"}, deploy.Failure
					}
					if got := l.get("d").Status; got != status {
						t.Errorf("the deployment is %s, want %s", got, status)
					}
					if diff := cmp.Diff(ran, l.ran()); diff != "" {
						t.Errorf("executed (-want +got):\n%s", diff)
					}
					if saved != "to apply" {
						t.Errorf("the second run found %q saved by the first", saved)
					}
					l.wantLegal("d")
				})
			})
		}
	}
}

// TestCrashAtEveryWrite kills the agent at each write of a deployment's life in
// turn. After the restart every deployment ends as it would have without the
// crash, and no stage ends twice.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	whole := func(l *lab) { l.planned("d") }
	cases := map[string]struct {
		two   executor
		setUp func(*lab)
		want  deploy.Status
		never string // the stage that must not run
	}{
		"of a success":   {two: succeed, setUp: whole, want: deploy.Success},
		"of a rollback":  {two: fail("no"), setUp: whole, want: deploy.Failure},
		"of a cancelled": {two: hang, setUp: (*lab).cancelledInOne, want: deploy.Cancelled, never: "two"},
		"of skipped stages": {two: succeed, want: deploy.Success, never: "two", setUp: func(l *lab) {
			l.planned("d", func(p *deploy.Plan) {
				p.Stages[0].Name = deploy.StageWait
				p.Stages[1].SkipOn = json.RawMessage(`{"paths":["docs"]}`)
			})
			l.askSkip("s", "d", "one")
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for at, crashed := 1, true; crashed; at++ {
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					inBubble(t, func(t *testing.T, l *lab) {
						l.changes = changed("docs/a")
						l.executors["TWO"], l.executors[deploy.StageWait] = c.two, executor(hang)
						c.setUp(l)
						crashed = l.crashAt(at)
						l.start()
						time.Sleep(time.Minute)
						synctest.Wait()
						if d := l.get("d"); d.Status != c.want {
							t.Errorf("the deployment is %s because %q, want %s", d.Status, d.StatusReason, c.want)
						}
						if never := "d/" + c.never; slices.ContainsFunc(l.ran(), func(ran string) bool { return strings.TrimSuffix(ran, "*") == never }) {
							t.Errorf("executed %v", l.ran())
						}
						l.wantLegal("d")
						open, err := l.store.OpenCommands(t.Context())
						if err != nil || len(open) > 0 {
							t.Errorf("open commands: %v %v", open, err)
						}
					})
				})
			}
		})
	}
}

// cancelledInOne stores a deployment that runs its first stage, and its cancel:
// one that waits would be cancelled at once.
func (l *lab) cancelledInOne() {
	l.t.Helper()
	l.planned("d")
	l.askCancel("c", "d")
	l.update("d", func(d *deploy.Deployment) error {
		if err := d.Start(time.Now()); err != nil {
			return err
		}
		return d.StartStage("one", time.Now())
	})
}

// crashAt runs the scheduler until the store's clock is read for the nth time:
// that is done once for each write. It reports whether that ever happened.
func (l *lab) crashAt(n int) bool {
	l.t.Helper()
	if err := l.store.Close(); err != nil {
		l.t.Fatal(err)
	}
	var reads atomic.Int64
	l.storeNow = func() time.Time {
		if reads.Add(1) == int64(n) {
			_ = l.store.Close() // the write that is about to begin fails
		}
		return time.Now()
	}
	l.open()
	l.start()
	time.Sleep(time.Minute)
	synctest.Wait()
	l.storeNow = time.Now
	l.crash()
	return reads.Load() >= int64(n)
}

// TestOldReadingStartsNothing: a deployment that ended between the scheduler's
// reading it and its starting a run is not run again.
func TestOldReadingStartsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors[deploy.StageK8sSync] = lasting(time.Second)
		l.start()
		l.planned("d")
		synctest.Wait()
		old := l.get("d")
		time.Sleep(time.Minute)
		l.shutdown()
		if old.Status != deploy.Running || l.get("d").Status != deploy.Success {
			t.Fatalf("the deployment went from %s to %s", old.Status, l.get("d").Status)
		}
		before := len(l.ran())
		s := New(Config{Store: l.store, Executors: map[string]Executor{deploy.StageK8sSync: executor(func(context.Context, deploy.StageRun) deploy.StageResult {
			t.Error("the stage was run again")
			return deploy.StageResult{Status: deploy.StageFailure}
		})}, Limits: func() Limits { return Limits{} }, Now: time.Now, Logger: l.logger})
		s.consider(old)
		for _, r := range s.startable() {
			s.drive(t.Context(), r)
		}
		if len(l.ran()) != before {
			t.Errorf("executed %v", l.ran())
		}
		l.wantEnd("d", deploy.Success, "Deployment completed successfully")
	})
}

// wantLegal fails if the deployment's log holds a move the tables forbid, or a
// stage that ended more than once.
func (l *lab) wantLegal(id string) {
	l.t.Helper()
	if err := l.checkLegal(id); err != nil {
		l.t.Error(err)
	}
}

func (l *lab) checkLegal(id string) error {
	log, err := l.store.Transitions(context.Background(), id)
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
	d, err := l.store.Deployment(context.Background(), id)
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
