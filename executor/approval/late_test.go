package approval

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestTooLate: no command stays open after its stage has ended, and commands for a
// waiting or later stage are left to it.
func TestTooLate(t *testing.T) {
	inBubble(t, "", func(t *testing.T, e *env) {
		e.startRun()
		defer e.endRun()
		on := func(deployment, stage string) func(*deploy.Command) {
			return func(c *deploy.Command) { c.DeploymentID, c.StageID = deployment, stage }
		}
		e.ask("unknown deployment", deploy.CommandApproveStage, "ann", "", on("e", "ok"))
		e.ask("unknown stage", deploy.CommandApproveStage, "ann", "", on("d", "huh"))
		e.ask("another stage", deploy.CommandRejectStage, "ann", "", on("d", "pause"))
		e.ask("early", deploy.CommandApproveStage, "ann", "", on("d", "later"))
		e.approve("in time", "ann")
		e.wantAnswer("unknown deployment", deploy.CommandFailed, "there is no deployment e")
		e.wantAnswer("unknown stage", deploy.CommandFailed, `deployment d has no stage "huh"`)
		e.wantAnswer("another stage", deploy.CommandFailed, "stage pause is a WAIT stage; only WAIT_APPROVAL can be approved or rejected")
		e.wantAnswer("early", deploy.CommandOpen, "")
		e.wantAnswer("in time", deploy.CommandOpen, "")

		e.execute(false)
		e.wantEnd(deploy.StageSuccess, "")
		e.wantAnswer("in time", deploy.CommandSucceeded, "")
		e.approve("too late", "ben") // the stage stays RUNNING until the scheduler stores its end
		e.wantAnswer("too late", deploy.CommandOpen, "")
		e.update(func(d *deploy.Deployment) error { return d.FinishStage("ok", deploy.StageSuccess, "", time.Now()) })
		synctest.Wait()
		e.wantAnswer("too late", deploy.CommandFailed, "the stage has ended already: it is SUCCESS")
		e.wantAnswer("early", deploy.CommandOpen, "")

		e.update(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Cancelled, "", time.Now()) })
		synctest.Wait()
		e.wantAnswer("early", deploy.CommandFailed, "the stage did not run and will not: the deployment is ROLLING_BACK")
		e.update(func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", time.Now()) })
		e.ask("after the end", deploy.CommandApproveStage, "ann", "", on("d", "later"))
		e.wantAnswer("after the end", deploy.CommandFailed, "the stage did not run and will not: the deployment is CANCELLED")
	})
}

// TestEndedBeforeTheAnswer: the decisive vote is answered with success although the
// stage has ended.
func TestEndedBeforeTheAnswer(t *testing.T) {
	inBubble(t, "", func(t *testing.T, e *env) {
		e.approve("c", "ann")
		kv, err := record{deploy.ApprovalRecord{Approvals: []vote{{By: "ann", Command: "c"}}}}.metadata()
		if err != nil {
			t.Fatal(err)
		}
		e.update(func(d *deploy.Deployment) error {
			d.Stage("ok").Metadata = kv
			return d.FinishStage("ok", deploy.StageSuccess, "", time.Now())
		})
		e.startRun() // the agent restarts
		defer e.endRun()
		e.wantAnswer("c", deploy.CommandSucceeded, "")
	})
}
