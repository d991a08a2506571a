package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestLogsAreStoredBeforeTheEnd: the whole log is stored, in order, before the stage's
// end. The failure reason is its last line.
func TestLogsAreStoredBeforeTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			run.Log.Infof("applying %d objects", 2)
			run.Log.Successf("applied")
			return deploy.StageResult{Status: deploy.StageFailure, Reason: "web: no pod became ready"}
		})
		var seen []string
		e.executors[deploy.StageRollback] = executor(func(context.Context, deploy.StageRun) deploy.StageResult {
			seen = e.log("d", "one")
			return deploy.StageResult{Status: deploy.StageSuccess}
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		want := []string{"0 INFO applying 2 objects", "1 SUCCESS applied", "2 ERROR web: no pod became ready"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("the log at the stage's end (-want +got):\n%s", diff)
		}
	})
}

// TestLogsAppearWhileTheStageRuns: lines can be read before the stage ends.
func TestLogsAppearWhileTheStageRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			run.Log.Infof("waiting")
			return hang(ctx, run)
		})
		e.start()
		e.planned("d")
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"0 INFO waiting"}, e.log("d", "one")); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// TestLogsContinue: the resumed stage continues the log of the interrupted run, and a
// shutdown neither loses nor adds lines.
func TestLogsContinue(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			if run.Resumed {
				run.Log.Infof("second run")
				return succeed(ctx, run)
			}
			run.Log.Infof("first run")
			return hang(ctx, run)
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		e.shutdown()
		e.start()
		synctest.Wait()
		if diff := cmp.Diff([]string{"0 INFO first run", "1 INFO The agent was interrupted here (it restarted, or its database failed); the stage is resumed", "2 INFO second run"}, e.log("d", "one")); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// TestManyLogs: lines from several goroutines beyond one batch are each stored once.
func TestManyLogs(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		const writers, lines = 4, 1500
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			done := make(chan bool)
			for range writers {
				go func() {
					for i := range lines {
						run.Log.Infof("line %d", i)
					}
					done <- true
				}()
			}
			for range writers {
				<-done
			}
			return succeed(ctx, run)
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		log := e.log("d", "one")
		if len(log) != writers*lines {
			t.Fatalf("%d lines stored, want %d", len(log), writers*lines)
		}
		for i, line := range log {
			if !strings.HasPrefix(line, fmt.Sprintf("%d INFO line ", i)) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	})
}

// TestLogLines: long and invalid lines are stored in a valid form.
func TestLogLines(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			run.Log.Infof("%s", strings.Repeat("é", maxLogLine))
			run.Log.Infof("bad \xff byte")
			return succeed(ctx, run)
		})
		e.start()
		e.planned("d")
		synctest.Wait()
		want := []string{"0 INFO " + strings.Repeat("é", maxLogLine/2) + " … (cut)", "1 INFO bad \uFFFD byte"}
		if diff := cmp.Diff(want, e.log("d", "one")); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// TestLogsOfAStoreThatFails: lines are buffered up to a limit while the store fails,
// and later lines do not reuse their numbers.
func TestLogsOfAStoreThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.planned("d")
		sink := newLogSink(e.store, e.logger)
		sink.maxPending = 100
		first, err := sink.open(t.Context(), "d", "one", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sink.maxPending + 10 {
			first.Infof("line %d", i)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sink.flush(ended); err == nil {
			t.Error("a flush that cannot be done reports nothing")
		}
		if _, err := sink.open(ended, "d", "one", time.Now); err == nil {
			t.Error("a log is opened while the lines before it are not stored")
		}
		second, err := sink.open(t.Context(), "d", "one", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		second.Infof("after")
		if err := sink.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		log := e.log("d", "one")
		if want := fmt.Sprintf("%d INFO after", sink.maxPending); len(log) != sink.maxPending+1 || log[sink.maxPending] != want {
			t.Errorf("%d lines, the last %q; want %d and %q", len(log), log[len(log)-1], sink.maxPending+1, want)
		}
	})
}

// TestLogsThatAnotherStored: a flush at a stage's end does not wait for later lines of
// other stages.
func TestLogsThatAnotherStored(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.planned("d")
		sink := newLogSink(e.store, e.logger)
		log := sink.begin(t.Context(), "d", "one", time.Now)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		log.Infof("mine")
		if err := sink.flushTo(ended, 1); err == nil {
			t.Error("a line that is not stored is not waited for")
		}
		if err := sink.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		log.Infof("another's")
		if err := sink.flushTo(ended, 1); err != nil {
			t.Errorf("a line that is stored is waited for: %v", err)
		}
		if err := sink.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"0 INFO mine", "1 INFO another's"}, e.log("d", "one")); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// TestStageWhoseLogCannotBeStored: the end of a stage is stored after its log, and the
// stage is not run again meanwhile.
func TestStageWhoseLogCannotBeStored(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		db, err := sql.Open("sqlite", strings.TrimPrefix(e.dsn, "sqlite://"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		e.executors["TWO"] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			if _, err := db.Exec("CREATE TRIGGER full BEFORE INSERT ON stage_logs BEGIN SELECT RAISE(FAIL, 'disk full'); END"); err != nil {
				t.Error(err)
			}
			run.Log.Infof("what was done")
			return succeed(ctx, run)
		})
		e.start()
		e.planned("d")
		time.Sleep(time.Minute)
		synctest.Wait()
		e.wantStage("d", "two", deploy.StageRunning, "")
		if _, err := db.Exec("DROP TRIGGER full"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		e.wantEnd("d", deploy.Success, "Deployment completed successfully")
		e.wantRan("d/one", "d/two")
		if diff := cmp.Diff([]string{"0 INFO what was done"}, e.log("d", "two")); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}
