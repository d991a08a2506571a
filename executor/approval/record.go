package approval

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// metaRejectedBy is the key of Stage.Metadata for the user who rejected the stage.
const metaRejectedBy = "RejectedBy"

type vote = deploy.ApprovalVote

// record contains the votes on a stage. It is immutable: adding a vote returns a new
// one.
type record struct{ deploy.ApprovalRecord }

func recordOf(stage deploy.Stage) (record, error) {
	r, err := stage.ApprovalRecord()
	return record{r}, err
}

// metadata encodes the record as stage metadata.
func (r record) metadata() (map[string]string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	kv := map[string]string{deploy.MetaApprovalRecord: string(text), deploy.MetaApprovedBy: strings.Join(r.approvers(), ", ")}
	if r.Rejection != nil {
		kv[metaRejectedBy] = r.Rejection.By
	}
	return kv, nil
}

// approvers returns the names of the users who have approved, in the order of their votes.
func (r record) approvers() []string {
	names := make([]string, len(r.Approvals))
	for i, v := range r.Approvals {
		names[i] = v.By
	}
	return names
}

// holds reports whether the record contains the vote of the command with this ID.
func (r record) holds(command string) bool {
	return r.Rejection != nil && r.Rejection.Command == command ||
		slices.ContainsFunc(r.Approvals, func(v vote) bool { return v.Command == command })
}

// with returns the record with the vote c, or an Invalid error if c does not count. An approval
// by one of the excluded does not.
func (r record) with(c deploy.Command, o options, excluded []party) (record, error) {
	if !o.Permits(c.Commander, c.CommanderGroups) {
		return r, deploy.Errorf(deploy.Invalid, "%s is not an approver of this stage; the approvers are: %s", c.Commander, o.ApproverList())
	}
	v := vote{By: c.Commander, Command: c.ID, Reason: c.Reason, At: c.CreatedAt}
	if c.Type == deploy.CommandRejectStage {
		r.Rejection = &v
		return r, nil
	}
	if slices.Contains(r.approvers(), c.Commander) {
		return r, deploy.Errorf(deploy.Invalid, "%s has approved this stage already, and each person counts once; %s missing", c.Commander, o.missing(r))
	}
	if role := roleOf(c.Commander, excluded); role != "" {
		return r, deploy.Errorf(deploy.Invalid, "%s %s, and this stage requires the approval of another person (requireOther)", c.Commander, role)
	}
	r.Approvals = append(slices.Clip(r.Approvals), v)
	return r, nil
}
