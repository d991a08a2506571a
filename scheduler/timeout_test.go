package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestTimeouts: the first limit to pass stops the stage and is named in the reason.
func TestTimeouts(t *testing.T) {
	const minute = time.Minute
	cases := []struct {
		name                      string
		stage, deployment, revert time.Duration // the timeouts
		one, back                 executor
		after                     time.Duration
		reason                    string
	}{
		{
			name: "the stage's", stage: 5 * minute, deployment: time.Hour, revert: time.Hour, one: hang, back: succeed, after: 5 * minute,
			reason: "Stage K8S_SYNC failed: timed out after 5m0s: stopped: timed out; rolled back to commit beef012",
		},
		{
			name: "the deployment's", stage: 5 * minute, deployment: 3 * minute, revert: time.Hour, one: hang, back: succeed, after: 3 * minute,
			reason: "Stage K8S_SYNC failed: the deployment timed out after 3m0s (spec.timeout): stopped: timed out; rolled back to commit beef012",
		},
		{
			name: "the deployment's in a later stage", deployment: 3 * minute, revert: time.Hour, one: lasting(2 * minute), back: succeed, after: 3 * minute,
			reason: "Stage TWO failed: the deployment timed out after 3m0s (spec.timeout): stopped: timed out; rolled back to commit beef012",
		},
		{
			name: "the rollback's, which begins anew", deployment: 3 * minute, revert: 4 * minute, one: hang, back: hang, after: 7 * minute,
			reason: "Stage K8S_SYNC failed: the deployment timed out after 3m0s (spec.timeout): stopped: timed out; " +
				"the rollback failed too: the rollback timed out after 4m0s (spec.rollback.timeout): stopped: timed out; the cluster may be in neither state",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync], e.executors["TWO"], e.executors[deploy.StageRollback] = c.one, executor(hang), c.back
				e.start()
				e.planned("d", func(p *deploy.Plan) {
					p.Timeout, p.RollbackTimeout, p.Stages[0].Timeout = c.deployment, c.revert, c.stage
				})
				time.Sleep(c.after - time.Second)
				synctest.Wait()
				if d := e.get("d"); d.Status.Completed() {
					t.Fatalf("%s too early, because %q", d.Status, d.StatusReason)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				e.wantEnd("d", deploy.Failure, c.reason)
			})
		})
	}
}

// TestRestartExtendsNoDeadline: a deadline includes the agent's downtime.
func TestRestartExtendsNoDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(hang)
		e.start()
		e.planned("d", func(p *deploy.Plan) { p.Stages[0].Timeout = 10 * time.Minute })
		synctest.Wait()
		before := e.get("d")
		for range 3 {
			time.Sleep(2 * time.Minute)
			e.shutdown()
			time.Sleep(time.Minute)
			e.start()
		}
		synctest.Wait()
		after := e.get("d")
		if !after.Deadline.Equal(before.Deadline) || !after.Stages[0].Deadline.Equal(before.Stages[0].Deadline) {
			t.Errorf("deadlines moved from %s and %s to %s and %s", before.Deadline, before.Stages[0].Deadline, after.Deadline, after.Stages[0].Deadline)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := e.get("d").Status; got != deploy.Running {
			t.Fatalf("a second before the deadline the deployment is %s", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		e.wantEnd("d", deploy.Failure, "Stage K8S_SYNC failed: timed out after 10m0s: stopped: timed out; rolled back to commit beef012")
	})
}

// TestDeadlinePassedWhileAway: a stage whose deadline passed during the agent's
// downtime is stopped at once by its executor.
func TestDeadlinePassedWhileAway(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = executor(hang)
		e.start()
		e.planned("d", func(p *deploy.Plan) { p.Stages[0].Timeout = 10 * time.Minute })
		synctest.Wait()
		e.shutdown()
		time.Sleep(20 * time.Minute)
		e.start()
		synctest.Wait()
		e.wantEnd("d", deploy.Failure, "Stage K8S_SYNC failed: timed out after 10m0s: stopped: timed out; rolled back to commit beef012")
	})
}
