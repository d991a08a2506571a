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

// TestSkipRunningStage: the stage is told, ends SKIPPED, and the next goes on.
func TestSkipRunningStage(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.executors[deploy.StageWait] = executor(hang)
		l.start()
		l.planned("d", waiting3, func(p *deploy.Plan) {
			p.Stages = append(p.Stages, deploy.Stage{ID: "three", Name: deploy.StageK8sSync})
		})
		synctest.Wait()
		l.wantStage("d", "two", deploy.StageRunning, "")
		l.askSkip("s", "d", "two", func(c *deploy.Command) { c.Reason = "we have seen enough" })
		synctest.Wait()
		l.wantAnswer("s", deploy.CommandSucceeded, "")
		l.wantStage("d", "two", deploy.StageSkipped, "skipped by ann: we have seen enough")
		if diff := cmp.Diff([]string{"0 INFO skipped by ann: we have seen enough"}, l.log("d", "two")); diff != "" {
			t.Errorf("the stage's log (-want +got):\n%s", diff)
		}
		d := l.get("d")
		if by := d.Stage("two").Metadata["SkippedBy"]; by != "ann" {
			t.Errorf("SkippedBy is %q, want ann", by)
		}
		l.wantEnd("d", deploy.Success, "Deployment completed successfully")
		l.wantRan("d/one", "d/two", "d/three")
	})
}

// TestSkipBeforeItsTurn: the skip of a stage that has not started is kept, and
// the stage passed over; it never runs.
func TestSkipBeforeItsTurn(t *testing.T) {
	for name, running := range map[string]bool{"while PLANNED": false, "while an earlier stage runs": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageK8sSync] = lasting(time.Minute)
				l.limits.Deployments = 1
				l.start()
				if !running {
					l.planned("first")
					synctest.Wait()
				}
				l.planned("d", waiting3)
				synctest.Wait()
				l.askSkip("s1", "d", "two")
				l.askSkip("s2", "d", "two", func(c *deploy.Command) { c.Commander = "ben" })
				synctest.Wait()
				l.wantAnswer("s1", deploy.CommandSucceeded, "")
				l.wantAnswer("s2", deploy.CommandSucceeded, "")
				l.wantStage("d", "two", deploy.StageNotStarted, "")
				l.crash()
				l.start()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				l.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
				l.wantEnd("d", deploy.Success, "Deployment completed successfully")
				l.wantLegal("d")
				for _, ran := range l.ran() {
					if ran == "d/two" {
						t.Errorf("the skipped stage was executed: %v", l.ran())
					}
				}
			})
		})
	}
}

// TestSkipOfTheOnlyStage: a deployment all of whose stages were skipped before
// it started succeeds.
func TestSkipOfTheOnlyStage(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.limits.Deployments = 1
		l.executors[deploy.StageK8sSync] = lasting(time.Minute)
		l.start()
		l.planned("first")
		synctest.Wait()
		l.planned("d", func(p *deploy.Plan) { p.Stages = []deploy.Stage{{ID: "two", Name: deploy.StageWait}} })
		synctest.Wait()
		l.askSkip("s", "d", "two")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
		l.wantEnd("d", deploy.Success, "Deployment completed successfully")
		l.wantLegal("d")
	})
}

// TestSkipWhileSkipOnIsJudged: the person's skip counts, whatever skipOn says.
func TestSkipWhileSkipOnIsJudged(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.changes = func(context.Context, string, string) ([]string, error) {
			time.Sleep(time.Second)
			return []string{"app/x"}, nil
		}
		l.start()
		l.planned("d", waiting3, func(p *deploy.Plan) { p.Stages[1].SkipOn = json.RawMessage(`{"paths":["docs"]}`) })
		synctest.Wait()
		l.askSkip("s", "d", "two")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
		l.wantRan("d/one")
	})
}

// TestSkipSurvives: a skip that was answered holds when the agent ends, in
// whatever way, before the stage has stopped.
func TestSkipSurvives(t *testing.T) {
	for name, end := range map[string]func(*lab){"a shutdown": (*lab).shutdown, "a crash": (*lab).crash} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				l.executors[deploy.StageWait] = executor(slowToStop)
				l.start()
				l.planned("d", waiting3)
				synctest.Wait()
				l.askSkip("s", "d", "two")
				synctest.Wait()
				l.wantAnswer("s", deploy.CommandSucceeded, "")
				end(l)
				l.wantStage("d", "two", deploy.StageRunning, "")
				l.start()
				synctest.Wait()
				l.wantStage("d", "two", deploy.StageSkipped, "skipped by ann")
				l.wantEnd("d", deploy.Success, "Deployment completed successfully")
			})
		})
	}
}

// TestSkipRefused states what cannot be skipped.
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
		to    func(d *deploy.Deployment, now time.Time) error // brings the deployment there; it is RUNNING at sync before
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

// TestSkipIsAnswered: refusals reach the command, also that of a deployment
// which is not planned or does not exist.
func TestSkipIsAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.start()
		l.pending("d", "app")
		l.askSkip("early", "d", "two")
		l.askSkip("unknown", "nobody", "two")
		l.askSkip("nothing", "", "")
		synctest.Wait()
		l.wantAnswer("early", deploy.CommandFailed, "deployment d has no stages yet, because it is PENDING: try again when it is planned")
		l.wantAnswer("unknown", deploy.CommandFailed, "there is no deployment nobody")
		l.wantAnswer("nothing", deploy.CommandFailed, "there is no deployment")
		l.plan("d", waiting3)
		synctest.Wait()
	})
}

// TestSkipHolds: a stage that ends by itself while its skip is stored is skipped
// all the same, unless it has succeeded.
func TestSkipHolds(t *testing.T) {
	stage := &deploy.Stage{Metadata: map[string]string{metaSkipCommand: "s", metaSkippedBy: "ann"}}
	skipped := deploy.StageResult{Status: deploy.StageSkipped, Reason: "skipped by ann"}
	for result, want := range map[deploy.StageStatus]deploy.StageResult{
		deploy.StageSuccess: {Status: deploy.StageSuccess}, deploy.StageExited: {Status: deploy.StageExited},
		deploy.StageFailure: skipped, deploy.StageCancelled: skipped, deploy.StageSkipped: skipped,
	} {
		if diff := cmp.Diff(want, honourSkip(stage, deploy.StageResult{Status: result})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", result, diff)
		}
	}
	failed := deploy.StageResult{Status: deploy.StageFailure, Reason: "no"}
	if diff := cmp.Diff(failed, honourSkip(&deploy.Stage{}, failed)); diff != "" {
		t.Errorf("without a skip (-want +got):\n%s", diff)
	}
}
