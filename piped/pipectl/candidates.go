package pipectl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newApplicationCandidates(t *tool) *cobra.Command {
	req := &controlv1.ListCandidatesRequest{}
	cmd := &cobra.Command{
		Use:   "candidates",
		Short: "Show the application configurations in Git that are not applications of the agent, and why.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListCandidatesResponse, error) {
				resp, err := c.control.ListCandidates(ctx, req)
				if err != nil {
					return nil, failed("failed to list candidates", err)
				}
				return resp, nil
			}, (*printer).candidates)
		},
	}
	cmd.Flags().StringVar(&req.RepositoryId, "repo-id", "", "The ID of the repository. Empty means all.")
	return required(cmd)
}

func (p *printer) candidates(resp *controlv1.ListCandidatesResponse) error {
	t := newTable(fixed("REPOSITORY"), fixed("FILE"), flexible("NAME"), fixed("KIND"), fixed("REASON"), flexible("DETAIL"))
	for _, c := range resp.GetCandidates() {
		path := c.GetGitPath()
		t.add(path.GetRepo().GetId(), strings.TrimPrefix(path.GetPath()+"/"+path.GetConfigFilename(), "/"), c.GetName(), c.GetKind(),
			word(c.GetReason(), "CANDIDATE_REASON_"), c.GetDetail())
	}
	return p.table(t, "Every application configuration in Git is an application of this agent.", "")
}
