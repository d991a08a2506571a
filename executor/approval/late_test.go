package approval

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestTooLate: no command stays open once its stage cannot take it any more,
// and what waits for its stage is left to it.
func TestTooLate(t *testing.T) {
	inBubble(t, "", func(t *testing.T, l *lab) {
		l.startRun()
		defer l.endRun()
		on := func(deployment, stage string) func(*deploy.Command) {
			return func(c *deploy.Command) { c.DeploymentID, c.StageID = deployment, stage }
		}
		l.ask("unknown deployment", deploy.CommandApproveStage, "ann", "", on("e", "ok"))
		l.ask("unknown stage", deploy.CommandApproveStage, "ann", "", on("d", "huh"))
		l.ask("another stage", deploy.CommandRejectStage, "ann", "", on("d", "pause"))
		l.ask("early", deploy.CommandApproveStage, "ann", "", on("d", "later"))
		l.approve("in time", "ann")
		l.wantAnswer("unknown deployment", deploy.CommandFailed, "there is no deployment e")
		l.wantAnswer("unknown stage", deploy.CommandFailed, `deployment d has no stage "huh"`)
		l.wantAnswer("another stage", deploy.CommandFailed, "stage pause is a WAIT stage; only WAIT_APPROVAL can be approved or rejected")
		l.wantAnswer("early", deploy.CommandOpen, "")
		l.wantAnswer("in time", deploy.CommandOpen, "")

		l.execute(false)
		l.wantEnd(deploy.StageSuccess, "")
		l.wantAnswer("in time", deploy.CommandSucceeded, "")
		l.approve("too late", "ben") // the stage is RUNNING until the scheduler has stored its end
		l.wantAnswer("too late", deploy.CommandOpen, "")
		l.update(func(d *deploy.Deployment) error { return d.FinishStage("ok", deploy.StageSuccess, "", time.Now()) })
		synctest.Wait()
		l.wantAnswer("too late", deploy.CommandFailed, "the stage has ended already: it is SUCCESS")
		l.wantAnswer("early", deploy.CommandOpen, "")

		l.update(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Cancelled, "", time.Now()) })
		synctest.Wait()
		l.wantAnswer("early", deploy.CommandFailed, "the stage did not run and will not: the deployment is ROLLING_BACK")
		l.update(func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", time.Now()) })
		l.ask("after the end", deploy.CommandApproveStage, "ann", "", on("d", "later"))
		l.wantAnswer("after the end", deploy.CommandFailed, "the stage did not run and will not: the deployment is CANCELLED")
	})
}

// TestEndedBeforeTheAnswer: a vote that ended the stage is not refused because
// the stage has ended.
func TestEndedBeforeTheAnswer(t *testing.T) {
	inBubble(t, "", func(t *testing.T, l *lab) {
		l.approve("c", "ann")
		kv, err := record{deploy.ApprovalRecord{Approvals: []vote{{By: "ann", Command: "c"}}}}.metadata()
		if err != nil {
			t.Fatal(err)
		}
		l.update(func(d *deploy.Deployment) error {
			d.Stage("ok").Metadata = kv
			return d.FinishStage("ok", deploy.StageSuccess, "", time.Now())
		})
		l.startRun() // the agent starts again
		defer l.endRun()
		l.wantAnswer("c", deploy.CommandSucceeded, "")
	})
}
