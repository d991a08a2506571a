package scheduler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestAdvance states what follows the end of a stage.
func TestAdvance(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	cancel := &deploy.Command{ID: "c", Commander: "ann"}
	noRollback := &deploy.Command{ID: "c", Commander: "ann", ForceNoRollback: true}
	type want struct {
		Status, Outcome deploy.Status
		Reason          string
		NextStarted     bool
	}
	cases := []struct {
		name     string
		rollback bool // the deployment has a rollback stage
		result   deploy.StageResult
		last     bool // the stage is the last one
		cancel   *deploy.Command
		want     want
	}{
		{name: "success starts the next stage", result: deploy.StageResult{Status: deploy.StageSuccess},
			want: want{Status: deploy.Running, Reason: "The deployment is running", NextStarted: true}},
		{name: "a skipped stage starts the next one", result: deploy.StageResult{Status: deploy.StageSkipped},
			want: want{Status: deploy.Running, Reason: "The deployment is running", NextStarted: true}},
		{name: "success of the last stage", last: true, result: deploy.StageResult{Status: deploy.StageSuccess},
			want: want{Status: deploy.Success, Reason: "Deployment completed successfully"}},
		{name: "an exit ends with success", result: deploy.StageResult{Status: deploy.StageExited},
			want: want{Status: deploy.Success, Reason: "Deployment completed successfully"}},
		{name: "failure without a rollback stage", result: deploy.StageResult{Status: deploy.StageFailure, Reason: "no"},
			want: want{Status: deploy.Failure, Reason: "Stage K8S_SYNC failed: no"}},
		{name: "failure rolls back", rollback: true, result: deploy.StageResult{Status: deploy.StageFailure, Reason: "no"},
			want: want{Status: deploy.RollingBack, Outcome: deploy.Failure, Reason: "Stage K8S_SYNC failed: no"}},
		{name: "a foreign change is not rolled back", rollback: true, result: deploy.StageResult{Status: deploy.StageFailure, Reason: "no", NoRollback: true},
			want: want{Status: deploy.Failure, Reason: "Stage K8S_SYNC failed: no"}},
		{name: "cancelled in a stage", rollback: true, cancel: cancel, result: deploy.StageResult{Status: deploy.StageCancelled},
			want: want{Status: deploy.RollingBack, Outcome: deploy.Cancelled, Reason: "Cancelled by ann"}},
		{name: "cancelled between stages", rollback: true, cancel: cancel, result: deploy.StageResult{Status: deploy.StageSuccess},
			want: want{Status: deploy.RollingBack, Outcome: deploy.Cancelled, Reason: "Cancelled by ann"}},
		{name: "cancelled after the last stage", last: true, rollback: true, cancel: cancel, result: deploy.StageResult{Status: deploy.StageSuccess},
			want: want{Status: deploy.RollingBack, Outcome: deploy.Cancelled, Reason: "Cancelled by ann"}},
		{name: "cancelled without rollback", rollback: true, cancel: noRollback, result: deploy.StageResult{Status: deploy.StageCancelled},
			want: want{Status: deploy.Cancelled, Reason: "Cancelled by ann; not rolled back, as asked"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			stages := []deploy.Stage{{ID: "one", Name: deploy.StageK8sSync}}
			if !c.last {
				stages = append(stages, deploy.Stage{ID: "two", Name: deploy.StageK8sSync})
			}
			if c.rollback {
				stages = append(stages, deploy.Stage{ID: "back", Name: deploy.StageRollback, Rollback: true})
			}
			d := deploy.Deployment{ID: "d", Status: deploy.Pending}
			for _, err := range []error{
				d.Plan(deploy.Plan{Stages: stages}, now), d.Start(now), d.StartStage("one", now), accepted(&d, c.cancel, now),
				d.FinishStage("one", c.result.Status, c.result.Reason, now), advance(&d, c.result, now),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			got := want{Status: d.Status, Outcome: d.Outcome, Reason: d.StatusReason}
			if two := d.Stage("two"); two != nil {
				got.NextStarted = two.Status == deploy.StageRunning
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("after the stage (-want +got):\n%s", diff)
			}
		})
	}
}

func accepted(d *deploy.Deployment, cancel *deploy.Command, now time.Time) error {
	if cancel == nil {
		return nil
	}
	return acceptCancel(d, *cancel, now)
}
