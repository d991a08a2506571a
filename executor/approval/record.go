package approval

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Keys of Stage.Metadata, beside deploy.MetaApprovedBy.
const (
	metaRejectedBy = "RejectedBy"
	metaRecord     = "approvalRecord" // JSON of a record: what is decided by
)

// vote is one command that had an effect.
type vote struct {
	By      string `json:"by"`
	Command string `json:"command"`
	Reason  string `json:"reason,omitempty"`
}

// record is what people have decided about a stage. It is a value: adding a
// vote makes a new one.
type record struct {
	Approvals []vote `json:"approvals,omitempty"` // at most one of each person
	Rejection *vote  `json:"rejection,omitempty"`
}

// recordOf reads the record of a stage; a stage without one has no votes.
func recordOf(stage deploy.Stage) (record, error) {
	var r record
	text := stage.Metadata[metaRecord]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, deploy.Errorf(deploy.Internal, "read the approvals of stage %s: %w", stage.ID, err)
	}
	return r, nil
}

// metadata is how the record is kept.
func (r record) metadata() (map[string]string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	kv := map[string]string{metaRecord: string(text), deploy.MetaApprovedBy: strings.Join(r.approvers(), ", ")}
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
