package pipectl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newPlanPreviewGet(t *tool) *cobra.Command {
	req := &controlv1.GetPlanPreviewRequest{}
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show what a plan preview found, by application and object.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetPlanPreviewResponse, error) {
				resp, err := c.control.GetPlanPreview(ctx, req)
				if status.Code(err) == codes.NotFound {
					return nil, hint(failed("failed to get the plan preview", err), "'pipectl plan-preview list' shows those of the last 24 hours")
				}
				if err != nil {
					return nil, failed("failed to get the plan preview", err)
				}
				return resp, nil
			}, (*printer).planPreview)
		},
	}
	cmd.Flags().StringVar(&req.CommandId, "command-id", "", "The ID of the plan preview.")
	return required(cmd, "command-id")
}

func (p *printer) planPreview(resp *controlv1.GetPlanPreviewResponse) error {
	b := resp.GetPlanPreview()
	err := p.fields(
		field{"ID", b.GetCommandId()},
		field{"Repository", b.GetRepositoryId()},
		field{"Branch", b.GetHeadBranch()},
		field{"Commit", b.GetHeadCommit()},
		field{"Base branch", b.GetBaseBranch()},
		field{"Pull request", pullRequestText(b.GetPullRequest())},
		field{"Status", colored(word(b.GetStatus(), commandStatusPrefix))},
		field{"Requested", p.when(b.GetRequestedAtMs())},
		field{"Requested by", b.GetRequestedBy()},
		field{"Ended", p.when(b.GetAnsweredAtMs())},
		field{"Reason", b.GetError()},
	)
	for _, a := range resp.GetApplications() {
		err = errors.Join(err, p.linef(""), p.previewedApplication(a))
	}
	return err
}

func (p *printer) previewedApplication(a *controlv1.PreviewedApplication) error {
	err := p.fields(
		field{"Application", a.GetApplicationName()},
		field{"Directory", a.GetDirectory()},
		field{"Strategy", a.GetStrategy()},
		field{"Summary", a.GetSummary()},
		field{"Reason", cell{text: a.GetError(), color: red}},
	)
	for _, w := range a.GetWarnings() {
		err = errors.Join(err, p.linef("Warning: %s", clean(w)))
	}
	err = errors.Join(err, p.changes(a.GetChanges()))
	if a.GetDetails() != "" {
		err = errors.Join(err, p.diff(a.GetDetails()))
	}
	if n := a.GetChangesLeftOut(); n > 0 {
		err = errors.Join(err, p.linef("Not stored, because there are too many: %s.", count(int(n), "further change")))
	}
	return err
}

// pullRequestText returns the number of a pull request as people write it; "" for none.
func pullRequestText(number int32) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("#%d", number)
}
