package approval

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

func TestOneApprovalOfAnyone(t *testing.T) {
	inBubble(t, "", func(t *testing.T, e *env) {
		e.execute(false)
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		e.wantWaiting()
		e.approve("c", "ann")
		e.wantEnd(deploy.StageSuccess, "")
		e.wantAnswer("c", deploy.CommandSucceeded, "")
		e.wantMetadata("ApprovedBy", "ann")
		want := []string{
			"Waiting for 1 approval of anyone, until " + e.start.Add(6*time.Hour).UTC().Format(time.RFC3339),
			"OK Approved by ann",
		}
		if diff := cmp.Diff(want, e.log.Lines()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestSeveralApprovers: only the named approvers count, each once, and every command is
// answered with its effect.
func TestSeveralApprovers(t *testing.T) {
	inBubble(t, `{"approvers": ["ann", "ben", "cleo"], "minApproverNum": 2, "timeout": "6h", "skipOn": null}`, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("first", "ann")
		e.wantAnswer("first", deploy.CommandSucceeded, "")
		e.wantMetadata("ApprovedBy", "ann")
		e.approve("again", "ann")
		e.wantAnswer("again", deploy.CommandFailed, "ann has approved this stage already, and each person counts once; 1 more approval is missing")
		e.approve("stranger", "mallory")
		e.wantAnswer("stranger", deploy.CommandFailed, "mallory is not an approver of this stage; the approvers are: ann, ben, cleo")
		e.ask("strange no", deploy.CommandRejectStage, "mallory", "because")
		e.wantAnswer("strange no", deploy.CommandFailed, "mallory is not an approver of this stage")
		e.wantWaiting()
		e.approve("second", "cleo")
		e.wantEnd(deploy.StageSuccess, "")
		e.wantAnswer("second", deploy.CommandSucceeded, "")
		e.wantMetadata("ApprovedBy", "ann, cleo")
		want := []string{
			"Waiting for 2 approvals of ann, ben, cleo, until " + e.start.Add(6*time.Hour).UTC().Format(time.RFC3339),
			"ann has approved; 1 more approval is missing",
			"The approval by ann does not count: ann has approved this stage already, and each person counts once; 1 more approval is missing",
			"The approval by mallory does not count: mallory is not an approver of this stage; the approvers are: ann, ben, cleo",
			"The rejection by mallory does not count: mallory is not an approver of this stage; the approvers are: ann, ben, cleo",
			"OK Approved by ann, cleo",
		}
		if diff := cmp.Diff(want, e.log.Lines()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestReject(t *testing.T) {
	for reason, want := range map[string]string{"": "rejected by ben", "too risky": "rejected by ben: too risky"} {
		inBubble(t, `{"minApproverNum": 2}`, func(t *testing.T, e *env) {
			e.execute(false)
			e.approve("yes", "ann")
			e.ask("no", deploy.CommandRejectStage, "ben", reason)
			e.wantEnd(deploy.StageFailure, want)
			e.wantAnswer("no", deploy.CommandSucceeded, "")
			e.wantMetadata("ApprovedBy", "ann")
			e.wantMetadata("RejectedBy", "ben")
		})
	}
}

// TestCommandsOfOthers: commands for other stages and deployments are ignored.
func TestCommandsOfOthers(t *testing.T) {
	inBubble(t, "", func(t *testing.T, e *env) {
		e.execute(false)
		e.ask("stage", deploy.CommandApproveStage, "ann", "", func(c *deploy.Command) { c.StageID = "later" })
		e.ask("deployment", deploy.CommandApproveStage, "ann", "", func(c *deploy.Command) { c.DeploymentID = "e" })
		e.ask("cancel", deploy.CommandCancel, "ann", "")
		for _, id := range []string{"stage", "deployment", "cancel"} {
			e.wantAnswer(id, deploy.CommandOpen, "")
		}
		e.wantWaiting()
		e.stop(deploy.StopShutdown)
		synctest.Wait()
	})
}

func TestStopped(t *testing.T) {
	for why, want := range map[deploy.StopReason]deploy.StageStatus{
		deploy.StopCancelled: deploy.StageCancelled,
		deploy.StopTimedOut:  deploy.StageFailure,
		deploy.StopSkipped:   deploy.StageSkipped,
	} {
		t.Run(string(why), func(t *testing.T) {
			inBubble(t, `{"minApproverNum": 2}`, func(t *testing.T, e *env) {
				e.execute(false)
				e.approve("c", "ann")
				e.stop(why)
				e.wantEnd(want, "1 of 2 have approved: ann")
			})
		})
	}
}

// TestRestart: earlier approvals count, and the deadline does not change.
func TestRestart(t *testing.T) {
	inBubble(t, `{"minApproverNum": 3}`, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("first", "ann")
		e.stop(deploy.StopShutdown)
		<-e.result
		e.closeStore()
		e.open()
		e.approve("meanwhile", "ben") // requested while no stage runs
		e.wantAnswer("meanwhile", deploy.CommandOpen, "")
		e.execute(true)
		e.wantAnswer("meanwhile", deploy.CommandSucceeded, "")
		e.approve("again", "ann")
		e.wantAnswer("again", deploy.CommandFailed, "ann has approved this stage already")
		e.wantWaiting()
		e.approve("third", "cleo")
		e.wantEnd(deploy.StageSuccess, "")
		e.wantMetadata("ApprovedBy", "ann, ben, cleo")
		want := "Waiting resumes after a restart of the agent: for 3 approvals of anyone, until " +
			e.start.Add(6*time.Hour).UTC().Format(time.RFC3339) + "; 1 of 3 have approved: ann"
		if got := e.log.Lines()[2]; got != want {
			t.Errorf("the log says %q, want %q", got, want)
		}
	})
}

// TestKilledBeforeTheAnswer: the agent dies after storing a vote and before answering
// its command. The vote counts once, and the command succeeds.
func TestKilledBeforeTheAnswer(t *testing.T) {
	cases := []struct {
		name   string
		kind   deploy.CommandType
		status deploy.StageStatus
		reason string
	}{
		{"an approval", deploy.CommandApproveStage, deploy.StageSuccess, ""},
		{"a rejection", deploy.CommandRejectStage, deploy.StageFailure, "rejected by ann: why"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, "", func(t *testing.T, e *env) {
				e.execute(false)
				e.saved = e.closeStore // from here on no write succeeds
				e.ask("c", c.kind, "ann", "why")
				<-e.result
				e.saved = func() {}
				e.open()
				e.wantAnswer("c", deploy.CommandOpen, "")
				e.execute(true)
				e.wantEnd(c.status, c.reason)
				e.wantAnswer("c", deploy.CommandSucceeded, "")
			})
		})
	}
}

// TestStoreFails: a vote that cannot be stored is not answered, but retried.
func TestStoreFails(t *testing.T) {
	inBubble(t, "", func(t *testing.T, e *env) {
		tries := 0
		executor := e.executor()
		d, err := e.store.Deployment(t.Context(), "d")
		if err != nil {
			t.Fatal(err)
		}
		result := make(chan deploy.StageResult, 1)
		go func() {
			result <- executor.Execute(context.Background(), deploy.StageRun{
				Deployment: d, Stage: *d.Stage("ok"), Log: e.log,
				SaveMetadata: func(context.Context, map[string]string) error {
					if tries++; tries == 1 {
						return errors.New("disk full")
					}
					return nil
				},
			})
		}()
		synctest.Wait()
		e.approve("c", "ann")
		e.wantAnswer("c", deploy.CommandOpen, "")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		e.wantAnswer("c", deploy.CommandSucceeded, "")
		if r := <-result; r.Status != deploy.StageSuccess {
			t.Errorf("the stage ended as %+v", r)
		}
	})
}

// TestUntil: the log states the earlier deadline.
func TestUntil(t *testing.T) {
	none, soon, late := time.Time{}, time.Unix(1_700_000_000, 0), time.Unix(1_800_000_000, 0)
	cases := []struct{ stage, deployment, want time.Time }{
		{none, none, none}, {soon, none, soon}, {none, soon, soon}, {soon, late, soon}, {late, soon, soon},
	}
	for _, c := range cases {
		if got := earlier(c.stage, c.deployment); !got.Equal(c.want) {
			t.Errorf("stage %v, deployment %v: until %v, want %v", c.stage, c.deployment, got, c.want)
		}
	}
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		stage deploy.Stage
		want  string
	}{
		"no JSON":        {deploy.Stage{Name: "WAIT_APPROVAL", Options: json.RawMessage("{")}, "read the options of WAIT_APPROVAL: unexpected end of JSON input"},
		"too few people": {deploy.Stage{Name: "WAIT_APPROVAL", Options: json.RawMessage(`{"minApproverNum": -1}`)}, "read the options of WAIT_APPROVAL: minApproverNum -1: expected at least 1"},
		"broken record":  {deploy.Stage{ID: "s", Metadata: map[string]string{deploy.MetaApprovalRecord: "["}}, "read the approvals of stage s: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			got := New(Config{}).Execute(t.Context(), deploy.StageRun{Stage: c.stage})
			if want := (deploy.StageResult{Status: deploy.StageFailure, Reason: c.want}); got != want {
				t.Errorf("ended as %+v, want %+v", got, want)
			}
		})
	}
}

func FuzzOptions(f *testing.F) {
	for _, seed := range []string{"", "null", `{"minApproverNum": 2}`, `{"approvers": ["a"]}`, `{"approvers": "a"}`, `{"minApproverNum": 1e99}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := optionsOf(deploy.Stage{Name: deploy.StageWaitApproval, Options: text})
		switch {
		case err == nil && (o.MinApproverNum < 1 || o.enough(record{})):
			t.Errorf("%q approves itself: %+v", text, o)
		case err != nil && !deploy.IsKind(err, deploy.Invalid):
			t.Errorf("%q: error of kind %s, want invalid", text, deploy.KindOf(err))
		}
	})
}
