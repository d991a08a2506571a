package approval

import (
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
)

// options are the stage's options. The scheduler enforces its timeout.
type options struct{ deploy.ApprovalOptions }

func optionsOf(stage deploy.Stage) (options, error) {
	o, err := stage.ApprovalOptions()
	return options{o}, err
}

// enough reports whether r contains enough approvals.
func (o options) enough(r record) bool { return len(r.Approvals) >= o.MinApproverNum }

// missing returns the start of a sentence about the approvals that r lacks, such as "2 more
// approvals are". r must lack at least one.
func (o options) missing(r record) string {
	if n := o.MinApproverNum - len(r.Approvals); n != 1 {
		return fmt.Sprintf("%d more approvals are", n)
	}
	return "1 more approval is"
}
