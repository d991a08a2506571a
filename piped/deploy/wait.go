package deploy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ApprovalOptions are the options of a WAIT_APPROVAL stage.
type ApprovalOptions struct {
	Approvers      []string `json:"approvers"` // subjects, and groups with ApproverGroup; empty permits everyone
	MinApproverNum int      `json:"minApproverNum"`
	// RequireOther excludes the approvals of those who requested or committed what is
	// deployed.
	RequireOther bool `json:"requireOther"`
}

// ApproverGroup is the prefix of an approver that is a group.
const ApproverGroup = "group:"

// Permits reports whether a user or API key is one of the approvers. An entry that names a
// group never permits a subject of that text.
func (o ApprovalOptions) Permits(subject string, groups []string) bool {
	return len(o.Approvers) == 0 || slices.ContainsFunc(o.Approvers, func(approver string) bool {
		if group, ok := strings.CutPrefix(approver, ApproverGroup); ok {
			return slices.Contains(groups, group)
		}
		return approver == subject
	})
}

// ApproverList lists the approvers for users, such as "jane, group payments".
func (o ApprovalOptions) ApproverList() string {
	names := make([]string, len(o.Approvers))
	for i, approver := range o.Approvers {
		names[i] = approver
		if group, ok := strings.CutPrefix(approver, ApproverGroup); ok {
			names[i] = "group " + group
		}
	}
	return strings.Join(names, ", ")
}

// ApprovalOptions decodes the options of a WAIT_APPROVAL stage. The default is one
// approval, as in PipeCD.
func (s *Stage) ApprovalOptions() (o ApprovalOptions, err error) {
	if len(s.Options) > 0 {
		if err := json.Unmarshal(s.Options, &o); err != nil {
			return o, Errorf(Invalid, "read the options of %s: %w", s.Name, err)
		}
	}
	if o.MinApproverNum < 0 {
		return o, Errorf(Invalid, "read the options of %s: minApproverNum %d: expected at least 1", s.Name, o.MinApproverNum)
	}
	o.MinApproverNum = max(1, o.MinApproverNum) // as in PipeCD
	return o, nil
}

// MetaApprovalRecord is the key of Stage.Metadata that holds an ApprovalRecord as JSON.
const MetaApprovalRecord = "approvalRecord"

// ApprovalRecord lists the votes on a WAIT_APPROVAL stage.
type ApprovalRecord struct {
	Approvals []ApprovalVote `json:"approvals,omitempty"` // at most one per user
	Rejection *ApprovalVote  `json:"rejection,omitempty"`
}

// ApprovalVote is an approval or rejection by one command.
type ApprovalVote struct {
	By      string `json:"by"`
	Command string `json:"command"`
	Reason  string `json:"reason,omitempty"`

	At time.Time `json:"at,omitzero"` // of the command
}

// ApprovalRecord decodes the votes on the stage; a stage without a record has none.
func (s *Stage) ApprovalRecord() (r ApprovalRecord, err error) {
	text := s.Metadata[MetaApprovalRecord]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, Errorf(Internal, "read the approvals of stage %s: %w", s.ID, err)
	}
	return r, nil
}

// Required describes the required approvals, such as "1 approval of jane, group payments".
func (o ApprovalOptions) Required() string {
	text := fmt.Sprintf("%d approvals", o.MinApproverNum)
	if o.MinApproverNum == 1 {
		text = "1 approval"
	}
	switch {
	case len(o.Approvers) > 0:
		return text + " of " + o.ApproverList()
	case o.RequireOther:
		return text + " of anyone who neither requested nor committed it"
	}
	return text + " of anyone"
}

// remaining returns the requirements left after the approvals of r.
func (o ApprovalOptions) remaining(r ApprovalRecord) ApprovalOptions {
	o.MinApproverNum = max(0, o.MinApproverNum-len(r.Approvals))
	o.Approvers = slices.DeleteFunc(slices.Clone(o.Approvers), func(name string) bool {
		return slices.ContainsFunc(r.Approvals, func(v ApprovalVote) bool { return v.By == name })
	})
	return o
}

// ReasonToPlan is the status reason of a deployment before the planner's first attempt.
const ReasonToPlan = "The deployment waits to be planned"

// Wait describes what an active or pending deployment waits for.
type Wait struct {
	For      string // such as "1 approval of jane"
	Since    time.Time
	StageID  string // the running stage; "" without one
	Approval bool   // it waits for users
}

// Wait returns what d waits for, nil if it has ended.
func (d *Deployment) Wait() *Wait {
	switch d.Status {
	case Pending:
		w := &Wait{For: strings.TrimPrefix(d.StatusReason, "Waiting for "), Since: d.CreatedAt}
		if d.StatusReason == ReasonToPlan {
			w.For = "its plan"
		}
		return w
	case Planned:
		return &Wait{For: "a free slot", Since: d.UpdatedAt}
	}
	i := slices.IndexFunc(d.Stages, func(s Stage) bool { return s.Status == StageRunning })
	if i < 0 || d.Status.Completed() {
		return nil
	}
	stage := &d.Stages[i]
	w := &Wait{For: "stage " + stage.Name, Since: stage.StartedAt, StageID: stage.ID}
	if stage.Name != StageWaitApproval {
		return w
	}
	o, err := stage.ApprovalOptions()
	r, recordErr := stage.ApprovalRecord()
	if err == nil && recordErr == nil { // otherwise the stage fails with that error
		w.For, w.Approval = o.remaining(r).Required(), true
	}
	return w
}
