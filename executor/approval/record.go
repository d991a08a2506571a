package approval

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// metaRejectedBy is a key of Stage.Metadata.
const metaRejectedBy = "RejectedBy"

type vote = deploy.ApprovalVote

// record is what people have decided about a stage. It is a value: adding a
// vote makes a new one.
type record struct{ deploy.ApprovalRecord }

func recordOf(stage deploy.Stage) (record, error) {
	r, err := stage.ApprovalRecord()
	return record{r}, err
}

// metadata is how the record is kept.
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

func (r record) approvers() []string {
	names := make([]string, len(r.Approvals))
	for i, v := range r.Approvals {
		names[i] = v.By
	}
	return names
}

// holds reports whether the effect of a command is in the record.
func (r record) holds(command string) bool {
	return r.Rejection != nil && r.Rejection.Command == command ||
		slices.ContainsFunc(r.Approvals, func(v vote) bool { return v.Command == command })
}

// with returns the record with the effect of c, and an Invalid error if c must
// not have one.
func (r record) with(c deploy.Command, o options) (record, error) {
	if len(o.Approvers) > 0 && !slices.Contains(o.Approvers, c.Commander) {
		return r, deploy.Errorf(deploy.Invalid, "%s is not an approver of this stage; the approvers are: %s", c.Commander, strings.Join(o.Approvers, ", "))
	}
	v := vote{By: c.Commander, Command: c.ID, Reason: c.Reason}
	if c.Type == deploy.CommandRejectStage {
		r.Rejection = &v
		return r, nil
	}
	if slices.Contains(r.approvers(), c.Commander) {
		return r, deploy.Errorf(deploy.Invalid, "%s has approved this stage already, and each person counts once; %s missing", c.Commander, o.missing(r))
	}
	r.Approvals = append(slices.Clip(r.Approvals), v)
	return r, nil
}
