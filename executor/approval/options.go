package approval

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// options are the stage's own. Its timeout is the scheduler's business.
type options struct {
	Approvers      []string `json:"approvers"` // subjects; empty is anyone
	MinApproverNum int      `json:"minApproverNum"`
}

func optionsOf(stage deploy.Stage) (options, error) {
	var o options
	if len(stage.Options) > 0 {
		if err := json.Unmarshal(stage.Options, &o); err != nil {
			return o, deploy.Errorf(deploy.Invalid, "read the options of %s: %w", stage.Name, err)
		}
	}
	switch {
	case o.MinApproverNum < 0:
		return o, deploy.Errorf(deploy.Invalid, "read the options of %s: minApproverNum %d: expected at least 1", stage.Name, o.MinApproverNum)
	case o.MinApproverNum == 0:
		o.MinApproverNum = 1 // as in PipeCD
	}
	return o, nil
}

// enough reports whether r approves the stage.
func (o options) enough(r record) bool { return len(r.Approvals) >= o.MinApproverNum }

// missing says how many approvals r lacks, such as "2 more approvals are".
func (o options) missing(r record) string {
	if n := o.MinApproverNum - len(r.Approvals); n != 1 {
		return fmt.Sprintf("%d more approvals are", n)
	}
	return "1 more approval is"
}

// wanted says what the stage waits for.
func (o options) wanted() string {
	text := fmt.Sprintf("%d approvals", o.MinApproverNum)
	if o.MinApproverNum == 1 {
		text = "1 approval"
	}
	if len(o.Approvers) == 0 {
		return text + " of anyone"
	}
	return text + " of " + strings.Join(o.Approvers, ", ")
}
