package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func changed(files ...string) changes {
	return func(context.Context, string, string) ([]string, error) { return files, nil }
}

// TestSkipOn: when skipOn skips a stage, with the reason and the log.
func TestSkipOn(t *testing.T) {
	t.Parallel()
	gone := deploy.Errorf(deploy.NotFound, "commit beef0123456789 is not in the mirror")
	down := deploy.Errorf(deploy.Unavailable, "the mirror is being made again")
	failing := func(err error, times int) changes {
		return func(context.Context, string, string) ([]string, error) {
			if times--; times < 0 {
				return []string{"docs/a.md"}, nil
			}
			return nil, err
		}
	}
	cases := []struct {
		name    string
		skipOn  string
		message string
		changes changes
		first   bool   // the application's first deployment
		reason  string // why it is skipped
		log     string // the first line of the stage's log
	}{
		{name: "a prefix of the commit's message", skipOn: `{"commitMessagePrefixes":["chore:","docs:"]}`, message: "docs: a word",
			reason: `skipped: the commit's message begins with "docs:" (skipOn.commitMessagePrefixes)`},
		{name: "a prefix in a first deployment", skipOn: `{"commitMessagePrefixes":["docs:"],"paths":["x"]}`, message: "docs: a word", first: true,
			reason: `skipped: the commit's message begins with "docs:" (skipOn.commitMessagePrefixes)`},
		{name: "another message", skipOn: `{"commitMessagePrefixes":["docs:"]}`, message: "fix docs: a word"},
		{name: "all files match", skipOn: `{"paths":["docs","*.md"]}`, changes: changed("docs/a.txt", "README.md"),
			reason: "skipped: every file changed since the running commit beef012 matches skipOn.paths"},
		{name: "one file does not match", skipOn: `{"paths":["docs"]}`, changes: changed("docs/a.txt", "app/x.yaml")},
		{name: "an excluded file", skipOn: `{"paths":["docs","!docs/README.md"]}`, changes: changed("docs/README.md")},
		{name: "nothing changed", skipOn: `{"paths":["docs"]}`, changes: changed(),
			reason: "skipped: nothing changed since the running commit beef012 (skipOn.paths)"},
		{name: "either is enough", skipOn: `{"commitMessagePrefixes":["chore:"],"paths":["docs"]}`, message: "fix: x", changes: changed("docs/a"),
			reason: "skipped: every file changed since the running commit beef012 matches skipOn.paths"},
		{name: "neither", skipOn: `{"commitMessagePrefixes":["chore:"],"paths":["docs"]}`, message: "fix: x", changes: changed("app/x.yaml")},
		{name: "no running commit", skipOn: `{"paths":["docs"]}`, first: true,
			log: "0 INFO skipOn.paths has nothing to compare with: the application has no running commit; the stage is not skipped"},
		{name: "the running commit is gone", skipOn: `{"paths":["docs"]}`, changes: failing(gone, 1),
			log: "0 INFO skipOn.paths cannot be evaluated: what changed since the running commit beef012 is unknown: commit beef0123456789 is not in the mirror; the stage is not skipped"},
		{name: "the repository is away for a moment", skipOn: `{"paths":["docs"]}`, changes: failing(down, 2),
			reason: "skipped: every file changed since the running commit beef012 matches skipOn.paths"},
		{name: "the repository stays away", skipOn: `{"paths":["docs"]}`, changes: failing(down, 1000),
			log: "0 INFO skipOn.paths cannot be evaluated: what changed since the running commit beef012 is unknown: the mirror is being made again; the stage is not skipped"},
		{name: "unreadable", skipOn: `{"paths":"docs"}`, log: "0 INFO skipOn cannot be read: json: cannot unmarshal string into Go struct field SkipOptions.paths of type config.Patterns; the stage is not skipped"},
		{name: "empty", skipOn: `{}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.changes = c.changes
				e.start()
				e.pending("d", "app-d", func(d *deploy.Deployment) { d.Trigger.Commit.Message = c.message })
				e.plan("d", func(p *deploy.Plan) {
					p.Stages[1].SkipOn = json.RawMessage(c.skipOn)
					if c.first {
						p.RunningCommit = ""
					}
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				e.wantEnd("d", deploy.Success, "Deployment completed successfully")
				if log := e.log("d", "two"); c.log != "" && (len(log) == 0 || log[0] != c.log) {
					t.Errorf("the stage's log is %q, want %q first", log, c.log)
				}
				if c.reason == "" {
					e.wantStage("d", "two", deploy.StageSuccess, "")
					e.wantRan("d/one", "d/two")
					return
				}
				e.wantStage("d", "two", deploy.StageSkipped, c.reason)
				e.wantRan("d/one")
				if diff := cmp.Diff([]string{"0 INFO The stage is " + c.reason}, e.log("d", "two")); diff != "" {
					t.Errorf("the stage's log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSkipOnNeverRunsTheStage: a skipped stage goes from not started to skipped, also
// as the first stage, and a restart does not run it.
func TestSkipOnNeverRunsTheStage(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.changes = changed("docs/a")
		e.executors["TWO"] = lasting(time.Minute)
		e.start()
		e.planned("d", func(p *deploy.Plan) { p.Stages[0].SkipOn = json.RawMessage(`{"paths":["docs"]}`) })
		synctest.Wait()
		e.shutdown()
		e.changes = changed("app/x")
		e.start()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		e.wantRan("d/two", "d/two*")
		want := []string{
			"deployment PENDING", "deployment PLANNED", "one NOT_STARTED_YET", "two NOT_STARTED_YET", "back NOT_STARTED_YET",
			"deployment RUNNING", "one SKIPPED", "two RUNNING", "two SUCCESS", "deployment SUCCESS",
		}
		if diff := cmp.Diff(want, e.moves("d")); diff != "" {
			t.Errorf("moves (-want +got):\n%s", diff)
		}
	})
}

// TestStoppedDuringSkipOn: cancel, timeout and interruption during the evaluation of
// skipOn behave as between two stages.
func TestStoppedDuringSkipOn(t *testing.T) {
	asking := func(ctx context.Context, _, _ string) ([]string, error) {
		<-ctx.Done()
		return nil, errors.New("stopped")
	}
	cases := []struct {
		name   string
		stop   func(e *env)
		want   deploy.Status
		reason string
		ran    []string
	}{
		{"cancelled", func(e *env) { e.askCancel("c", "d") }, deploy.Cancelled, "Cancelled by ann; rolled back to commit beef012", []string{"d/one", "d/back"}},
		{"timed out", func(*env) { time.Sleep(time.Hour) }, deploy.Failure,
			"Stage TWO failed: the deployment timed out after 1h0m0s (spec.timeout): stopped: timed out; rolled back to commit beef012", []string{"d/one", "d/two", "d/back"}},
		{"shut down", func(e *env) {
			e.shutdown()
			e.changes, e.executors["TWO"] = changed("docs/a"), executor(succeed)
			e.start()
		}, deploy.Success, "Deployment completed successfully", []string{"d/one"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.changes = asking
				e.executors["TWO"] = executor(hang)
				e.start()
				e.planned("d", func(p *deploy.Plan) { p.Stages[1].SkipOn = json.RawMessage(`{"paths":["docs"]}`) })
				synctest.Wait()
				e.wantStage("d", "two", deploy.StageNotStarted, "")
				c.stop(e)
				synctest.Wait()
				e.wantEnd("d", c.want, c.reason)
				e.wantRan(c.ran...)
			})
		})
	}
}
