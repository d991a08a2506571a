package pipectl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const commandStatusPrefix = "COMMAND_"

func newPlanPreviewList(t *tool) *cobra.Command {
	req := &controlv1.ListPlanPreviewsRequest{}
	var statuses []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the plan previews of the last 24 hours, newest first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range statuses {
				number, ok := modelv1.CommandStatus_value[commandStatusPrefix+strings.TrimPrefix(strings.ToUpper(s), commandStatusPrefix)]
				if !ok {
					return hint(fmt.Errorf("invalid status: %s", s), "the statuses are: %s", strings.Join(namesOf(modelv1.CommandStatus_name), ", "))
				}
				req.Statuses = append(req.Statuses, modelv1.CommandStatus(number))
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListPlanPreviewsResponse, error) {
				resp, err := c.control.ListPlanPreviews(ctx, req)
				if err != nil {
					return nil, failed("failed to list plan previews", err)
				}
				return resp, nil
			}, func(p *printer, resp *controlv1.ListPlanPreviewsResponse) error {
				return p.planPreviews(resp, int(req.Limit))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.RepositoryId, "repository", "", "The repository, as the agent's configuration names it.")
	flags.StringVar(&req.HeadBranch, "head-branch", "", "The branch with the change.")
	flags.Int32Var(&req.PullRequest, "pull-request", 0, "The number of the pull request with the change.")
	flags.StringSliceVar(&statuses, "status", nil, fmt.Sprintf("The statuses to show. (%s)", strings.Join(namesOf(modelv1.CommandStatus_name), "|")))
	flags.Int32Var(&req.Limit, "limit", 30, "The most plan previews to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

// planPreviews returns the table of plan previews; limit is the requested page size.
func (p *printer) planPreviews(resp *controlv1.ListPlanPreviewsResponse, limit int) error {
	t := newTable(fixed("ID"), flexible("REPOSITORY"), flexible("BRANCH"), fixed("COMMIT"), fixed("PULL REQUEST"), fixed("STATUS"),
		fixed("APPS"), fixed("CHANGED"), fixed("FAILED"), flexible("BY"), fixed("REQUESTED"), flexible("REASON"))
	for _, b := range resp.GetPlanPreviews() {
		t.add(b.GetCommandId(), b.GetRepositoryId(), b.GetHeadBranch(), shortHash(b.GetHeadCommit()), pullRequestText(b.GetPullRequest()), colored(word(b.GetStatus(), commandStatusPrefix)),
			fmt.Sprint(b.GetApplications()), fmt.Sprint(b.GetChangedApplications()), fmt.Sprint(b.GetFailedApplications()), b.GetRequestedBy(),
			p.age(b.GetRequestedAtMs()), b.GetError())
	}
	return p.table(t, "No plan previews.", ifMore(t, limit, resp))
}
