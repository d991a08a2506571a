package approval

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestGroups: an approver can be a group. Its members count, each once, and the record names
// them and not their group. A subject that is spelled like a group is no member of it.
func TestGroups(t *testing.T) {
	inBubble(t, `{"approvers": ["ana", "group:payments"], "minApproverNum": 3}`, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("no group", "ben")
		e.wantAnswer("no group", deploy.CommandFailed, "ben is not an approver of this stage; the approvers are: ana, group payments")
		e.approve("other group", "ben", "payment", "group:payments", "Payments")
		e.wantAnswer("other group", deploy.CommandFailed, "ben is not an approver of this stage; the approvers are: ana, group payments")
		e.approve("key named like the group", "group:payments")
		e.wantAnswer("key named like the group", deploy.CommandFailed, "group:payments is not an approver of this stage")
		e.approve("group named like a person", "mallory", "ana")
		e.wantAnswer("group named like a person", deploy.CommandFailed, "mallory is not an approver of this stage")
		e.approve("member", "cleo", "search", "payments")
		e.wantAnswer("member", deploy.CommandSucceeded, "")
		e.approve("member again", "cleo", "payments")
		e.wantAnswer("member again", deploy.CommandFailed, "cleo has approved this stage already")
		e.approve("person", "ana")
		e.wantAnswer("person", deploy.CommandSucceeded, "")
		e.wantWaiting()
		e.approve("second member", "dan", "payments")
		e.wantEnd(deploy.StageSuccess, "")
		e.wantMetadata("ApprovedBy", "cleo, ana, dan")
		e.wantMetadata(deploy.MetaApprovalRecord,
			`{"approvals":[{"by":"cleo","command":"member","at":"2000-01-01T00:00:05Z"},{"by":"ana","command":"person","at":"2000-01-01T00:00:07Z"},{"by":"dan","command":"second member","at":"2000-01-01T00:00:08Z"}]}`)
		want := "Waiting for 3 approvals of ana, group payments, until " + e.start.Add(6*time.Hour).UTC().Format(time.RFC3339)
		if diff := cmp.Diff(want, e.log.Lines()[0]); diff != "" {
			t.Errorf("first line of the log (-want +got):\n%s", diff)
		}
	})
}

// TestGroupRejects: a member of a group can reject.
func TestGroupRejects(t *testing.T) {
	inBubble(t, `{"approvers": ["group:payments"]}`, func(t *testing.T, e *env) {
		e.execute(false)
		e.ask("stranger", deploy.CommandRejectStage, "ben", "no")
		e.wantAnswer("stranger", deploy.CommandFailed, "ben is not an approver of this stage; the approvers are: group payments")
		e.ask("member", deploy.CommandRejectStage, "cleo", "no", func(c *deploy.Command) { c.CommanderGroups = []string{"payments"} })
		e.wantEnd(deploy.StageFailure, "rejected by cleo: no")
	})
}
