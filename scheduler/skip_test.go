package scheduler

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// waiting3 makes the second of the three stages a WAIT.
func waiting3(p *deploy.Plan) { p.Stages[1].Name = deploy.StageWait }

// TestSkipRunningStage: the stage is stopped, ends SKIPPED, and the next one starts.
func TestSkipRunningStage(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageWait] = executor(hang)
		e.start()
		e.planned("d", waiting3, func(p *deploy.Plan) {
			p.Stages = append(p.Stages, deploy.Stage{ID: "three", Name: deploy.StageK8sSync})
		})
		synctest.Wait()
		e.wantStage("d", "two", deploy.StageRunning, "")
		e.askSkip("s", "d", "two", func(c *deploy.Command) { c.Reason = "we have seen enough" })
		synctest.Wait()
		e.wantAnswer("s", deploy.CommandSucceeded, "")
		e.wantStage("d", "two", deploy.StageSkipped, "skipped by ann: we have seen enough")
		if diff := cmp.Diff([]string{"0 INFO skipped by ann: we have seen enough"}, e.log("d", "two")); diff != "" {
			t.Errorf("the stage's log (-want +got):\n%s", diff)
		}
		d := e.get("d")
		if by := d.Stage("two").Metadata["SkippedBy"]; by != "ann" {
			t.Errorf("SkippedBy is %q, want ann", by)
		}
		e.wantEnd("d", deploy.Success, "Deployment completed successfully")
		e.wantRan("d/one", "d/two", "d/three")
	})
}

// TestSkipBeforeItsTurn: a skip of a later stage is stored, and the stage never runs.
func TestSkipBeforeItsTurn(t *testing.T) {
	for name, running := range map[string]bool{"while PLANNED": false, "while an earlier stage runs": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync] = lasting(time.Minute)
				e.limits.Deployments = 1
				e.start()
				if !running {
					e.planned("first")
					synctest.Wait()
				}
				e.planned("d", waiting3)
				synctest.Wait()
				e.askSkip("s1", "d", "two")
				e.askSkip("s2", "d", "two", func(c *deploy.Command) { c.Commander = "ben" })
				synctest.Wait()
				e.wantAnswer("s1", deploy.CommandSucceeded, "")
				e.wantAnswer("s2", deploy.CommandSucceeded, "")
				e.wantStage("d", "two", deploy.StageNotStarted, "")
				e.crash()
				e.start()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				e.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
				e.wantEnd("d", deploy.Success, "Deployment completed successfully")
				e.wantLegal("d")
				for _, ran := range e.ran() {
					if ran == "d/two" {
						t.Errorf("the skipped stage was executed: %v", e.ran())
					}
				}
			})
		})
	}
}

// TestSkipOfTheOnlyStage: a deployment whose stages were all skipped before its start
// succeeds.
func TestSkipOfTheOnlyStage(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.limits.Deployments = 1
		e.executors[deploy.StageK8sSync] = lasting(time.Minute)
		e.start()
		e.planned("first")
		synctest.Wait()
		e.planned("d", func(p *deploy.Plan) { p.Stages = []deploy.Stage{{ID: "two", Name: deploy.StageWait}} })
		synctest.Wait()
		e.askSkip("s", "d", "two")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		e.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
		e.wantEnd("d", deploy.Success, "Deployment completed successfully")
		e.wantLegal("d")
	})
}

// TestSkipDuringSkipOn: a user's skip takes precedence over skipOn.
func TestSkipDuringSkipOn(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.changes = func(context.Context, string, string) ([]string, error) {
			time.Sleep(time.Second)
			return []string{"app/x"}, nil
		}
		e.start()
		e.planned("d", waiting3, func(p *deploy.Plan) { p.Stages[1].SkipOn = json.RawMessage(`{"paths":["docs"]}`) })
		synctest.Wait()
		e.askSkip("s", "d", "two")
		time.Sleep(time.Minute)
		synctest.Wait()
		e.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
		e.wantRan("d/one")
	})
}

// TestSkipSurvives: an accepted skip survives a shutdown and a crash of the agent
// before the stage has stopped.
func TestSkipSurvives(t *testing.T) {
	for name, end := range map[string]func(*env){"a shutdown": (*env).shutdown, "a crash": (*env).crash} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageWait] = executor(slowToStop)
				e.start()
				e.planned("d", waiting3)
				synctest.Wait()
				e.askSkip("s", "d", "two")
				synctest.Wait()
				e.wantAnswer("s", deploy.CommandSucceeded, "")
				end(e)
				e.wantStage("d", "two", deploy.StageRunning, "")
				e.start()
				synctest.Wait()
				e.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
				e.wantEnd("d", deploy.Success, "Deployment completed successfully")
			})
		})
	}
}

// TestSkipRefused: stages that cannot be skipped.
func TestSkipRefused(t *testing.T) {
	stages := []deploy.Stage{
		{ID: "wait", Name: deploy.StageWait},
		{ID: "sync", Name: deploy.StageK8sSync},
		{ID: "gate", Name: deploy.StageWaitApproval},
		{ID: "later", Name: deploy.StageWait},
		{ID: "back", Name: deploy.StageRollback, Rollback: true},
	}
	cases := []struct {
		name  string
		stage string
		to    func(d *deploy.Deployment, now time.Time) error // moves the deployment from RUNNING in stage sync to the state of the case
		want  string
	}{
		{"an unknown stage", "x", nil, `deployment d has no stage "x"`},
		{"no stage named", "", nil, `deployment d has no stage ""`},
		{"an approval", "gate", nil, "stage gate needs approval and cannot be skipped: approve it, or reject it"},
		{"a sync", "sync", nil, "stage sync is a K8S_SYNC stage and cannot be skipped: only WAIT and ANALYSIS can"},
		{"a rollback", "back", nil, "stage back is a ROLLBACK stage and cannot be skipped: only WAIT and ANALYSIS can"},
		{"a stage that has ended", "wait", nil, "stage wait has ended already: it is SUCCESS"},
		{"while rolling back", "later", func(d *deploy.Deployment, now time.Time) error {
			return d.BeginRollback(deploy.Failure, "no", now)
		}, "stage later does not run any more: the deployment is ROLLING_BACK"},
		{"after the end", "later", func(d *deploy.Deployment, now time.Time) error {
			return d.Complete(deploy.Failure, "no", now)
		}, "stage later does not run any more: the deployment is FAILURE"},
		{"after a cancel", "later", func(d *deploy.Deployment, now time.Time) error {
			return acceptCancel(d, deploy.Command{ID: "c", Commander: "ben"}, now)
		}, "stage later does not run any more: ben has cancelled the deployment"},
		{"a stage that may be skipped", "later", nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			d := deploy.Deployment{ID: "d", Status: deploy.Pending}
			steps := []error{
				d.Plan(deploy.Plan{Stages: stages}, now), d.Start(now), d.StartStage("wait", now),
				d.FinishStage("wait", deploy.StageSuccess, "", now), d.StartStage("sync", now),
			}
			if c.to != nil {
				steps = append(steps, c.to(&d, now))
			}
			for _, err := range steps {
				if err != nil {
					t.Fatal(err)
				}
			}
			before := d.Clone()
			err := acceptSkip(&d, deploy.Command{ID: "s", StageID: c.stage, Commander: "ann"})
			if c.want == "" {
				if err != nil || skipOf(d.Stage(c.stage)) == nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got error %v,\nwant %s", err, c.want)
			}
			if diff := cmp.Diff(before, d); diff != "" {
				t.Errorf("a refused skip changed the deployment (-before +after):\n%s", diff)
			}
		})
	}
}

// TestSkipIsAnswered: rejected commands are answered with the reason, also for
// unplanned and missing deployments.
func TestSkipIsAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start()
		e.pending("d", "app")
		e.askSkip("early", "d", "two")
		e.askSkip("unknown", "missing", "two")
		e.askSkip("nothing", "", "")
		synctest.Wait()
		e.wantAnswer("early", deploy.CommandFailed, "deployment d has no stages yet, because it is PENDING: try again when it is planned")
		e.wantAnswer("unknown", deploy.CommandFailed, "there is no deployment missing")
		e.wantAnswer("nothing", deploy.CommandFailed, "there is no deployment")
		e.plan("d", waiting3)
		synctest.Wait()
	})
}

// TestSkipHolds: a stage that ends while its skip is stored is SKIPPED, unless it has
// succeeded.
func TestSkipHolds(t *testing.T) {
	stage := &deploy.Stage{Metadata: map[string]string{metaSkipCommand: "s", metaSkippedBy: "ann"}}
	skipped := deploy.StageResult{Status: deploy.StageSkipped, Reason: "skipped by ann"}
	for result, want := range map[deploy.StageStatus]deploy.StageResult{
		deploy.StageSuccess: {Status: deploy.StageSuccess}, deploy.StageExited: {Status: deploy.StageExited},
		deploy.StageFailure: skipped, deploy.StageCancelled: skipped, deploy.StageSkipped: skipped,
	} {
		if diff := cmp.Diff(want, applySkip(stage, deploy.StageResult{Status: result})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", result, diff)
		}
	}
	failed := deploy.StageResult{Status: deploy.StageFailure, Reason: "no"}
	if diff := cmp.Diff(failed, applySkip(&deploy.Stage{}, failed)); diff != "" {
		t.Errorf("without a skip (-want +got):\n%s", diff)
	}
}
