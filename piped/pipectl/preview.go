package pipectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

const previewPhasePrefix = "PREVIEW_PHASE_"

func newPreview(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "preview", Short: "Manage the previews of pull requests."}
	cmd.AddCommand(newPreviewList(t), newPreviewGet(t), newPreviewLogs(t), newPreviewDelete(t), newPreviewExtend(t))
	return asGroup(cmd)
}

// ofPullRequest adds the flags that name a pull request, and requires them.
func ofPullRequest(cmd *cobra.Command, repository *string, number *int32) *cobra.Command {
	cmd.Flags().StringVar(repository, "repository", "", "The repository, as the agent's configuration names it.")
	cmd.Flags().Int32Var(number, "pull-request", 0, "The number of the pull request.")
	return required(cmd, "repository", "pull-request")
}

// unknownPreview adds to an error where previews are listed.
func unknownPreview(err error) error {
	return unknown(err, "'pipectl preview list' shows the pull requests with a preview")
}

func newPreviewList(t *tool) *cobra.Command {
	req := &controlv1.ListPreviewsRequest{}
	var phases []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the previews of open pull requests.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range phases {
				number, ok := controlv1.PreviewPhase_value[previewPhasePrefix+strings.ToUpper(s)]
				if !ok {
					return hint(fmt.Errorf("invalid state: %s", s), "the states are: waiting, building, ready, failed, removed")
				}
				req.Phases = append(req.Phases, controlv1.PreviewPhase(number))
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListPreviewsResponse, error) {
				resp, err := c.control.ListPreviews(ctx, req)
				if err != nil {
					return nil, failed("failed to list previews", err)
				}
				return resp, nil
			}, (*printer).previews)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.RepositoryId, "repository", "", "The repository, as the agent's configuration names it. Empty means any.")
	flags.StringSliceVar(&phases, "state", nil, "The states to show. (waiting|building|ready|failed|removed)")
	return required(cmd)
}

func (p *printer) previews(resp *controlv1.ListPreviewsResponse) error {
	t := newTable(flexible("REPOSITORY"), fixed("PULL REQUEST"), flexible("BRANCH"), fixed("COMMIT"), fixed("STATE"), fixed("SINCE"), fixed("EXPIRES"), flexible("LINK"), optional("HEADER"), flexible("REASON"))
	for _, m := range resp.GetPreviews() {
		t.add(m.GetRepositoryId(), pullRequestText(m.GetPullRequest()), m.GetHeadBranch(), shortHash(m.GetHeadCommit()), colored(word(m.GetPhase(), previewPhasePrefix)),
			p.age(m.GetSinceMs()), expires(m), strings.Join(previewLinks(m), " "), strings.Join(previewHeaders(m), ", "), m.GetReason())
	}
	return p.table(t, "No previews.", "")
}

// expires returns when a preview is removed, "" for never.
func expires(m *controlv1.Preview) string {
	if m.GetExpiresAtMs() == 0 {
		return ""
	}
	return instant(m.GetExpiresAtMs())
}

func previewLinks(m *controlv1.Preview) (links []string) {
	for _, a := range m.GetApplications() {
		if a.GetUrl() != "" {
			links = append(links, a.GetUrl())
		}
	}
	return links
}

// previewHeaders returns the headers of the requests that a preview gets. Its applications usually have the
// same one.
func previewHeaders(m *controlv1.Preview) (headers []string) {
	for _, a := range m.GetApplications() {
		if h := a.GetHeader(); h != "" && !slices.Contains(headers, h) {
			headers = append(headers, h)
		}
	}
	return headers
}

func newPreviewGet(t *tool) *cobra.Command {
	req := &controlv1.GetPreviewRequest{}
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show the preview of a pull request with its applications.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.Preview, error) {
				resp, err := c.control.GetPreview(ctx, req)
				if err != nil {
					return nil, unknownPreview(failed("failed to get the preview", err))
				}
				return resp.GetPreview(), nil
			}, (*printer).preview)
		},
	}
	return ofPullRequest(cmd, &req.RepositoryId, &req.PullRequest)
}

func (p *printer) preview(m *controlv1.Preview) error {
	err := p.fields(
		field{"Repository", m.GetRepositoryId()},
		field{"Pull request", pullRequestText(m.GetPullRequest())},
		field{"Branch", m.GetHeadBranch()},
		field{"Commit", m.GetHeadCommit()},
		field{"Base branch", m.GetBaseBranch()},
		field{"State", colored(word(m.GetPhase(), previewPhasePrefix))},
		field{"Reason", m.GetReason()},
		field{"Since", p.when(m.GetSinceMs())},
		field{"Created", p.when(m.GetCreatedAtMs())},
		field{"First ready", p.when(m.GetReadyAtMs())},
		field{"Expires", expires(m)},
	)
	t := newTable(flexible("APPLICATION"), fixed("STATE"), flexible("DEPLOYMENT"), flexible("LINK"), optional("HEADER"), flexible("REASON"))
	for _, a := range m.GetApplications() {
		t.add(a.GetApplicationName(), colored(word(a.GetPhase(), previewPhasePrefix)), a.GetDeploymentId(), a.GetUrl(), a.GetHeader(), a.GetReason())
	}
	var lines []string
	for _, a := range m.GetApplications() {
		if line := deploy.Curl(a.GetHeader(), a.GetHostnames()); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	err = errors.Join(err, p.section("Applications", t))
	if len(lines) > 0 {
		err = errors.Join(err, p.linef("\nTo send a request to it:\n%s", cleanLines(strings.Join(lines, "\n"))))
	}
	return err
}

func newPreviewLogs(t *tool) *cobra.Command {
	req := &controlv1.GetPreviewLogsRequest{}
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the last lines of the pods of a preview, and of what failed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetPreviewLogsResponse, error) {
				resp, err := c.control.GetPreviewLogs(ctx, req)
				if err != nil {
					return nil, unknownPreview(failed("failed to get the logs of the preview", err))
				}
				return resp, nil
			}, (*printer).previewLogs)
		},
	}
	cmd.Flags().StringVar(&req.ApplicationId, "app-id", "", "The preview application. Empty means all of them.")
	cmd.Flags().Int32Var(&req.TailLines, "tail", 0, "Only the last lines of each container. 0 means 100.")
	return ofPullRequest(cmd, &req.RepositoryId, &req.PullRequest)
}

func (p *printer) previewLogs(resp *controlv1.GetPreviewLogsResponse) error {
	if len(resp.GetLogs()) == 0 {
		return p.linef("No logs.")
	}
	var err error
	for i, l := range resp.GetLogs() {
		of := "deployment"
		if l.GetPod() != "" {
			of = "pod " + l.GetPod() + ", container " + l.GetContainer()
		} else if l.GetError() != "" {
			of = "pods"
		}
		if l.GetPrevious() {
			of += ", before its restart"
		}
		if i > 0 {
			err = errors.Join(err, p.linef(""))
		}
		err = errors.Join(err, p.linef("%s: %s", clean(l.GetApplicationName()), clean(of)))
		for _, line := range l.GetLines() {
			err = errors.Join(err, p.linef("  %s", clean(line)))
		}
		if l.GetError() != "" {
			err = errors.Join(err, p.linef("  Cannot be read: %s", clean(l.GetError())))
		}
	}
	if n := resp.GetLogsLeftOut(); n > 0 {
		err = errors.Join(err, p.linef("Not shown, because there are too many: %s.", count(int(n), "further log")))
	}
	return err
}

func newPreviewDelete(t *tool) *cobra.Command {
	req := &controlv1.DeletePreviewRequest{}
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Remove the preview of a pull request until its next commit.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := confirm(cmd, yes, fmt.Sprintf("Remove the preview of %s%s with all of its objects?", req.RepositoryId, pullRequestText(req.PullRequest))); err != nil {
				return err
			}
			return callAndReport(cmd, t, "Successfully asked to remove the preview of %s", func(ctx context.Context, c *client) (string, error) {
				now, err := c.preview(ctx, req.RepositoryId, req.PullRequest)
				if err != nil {
					return "", err
				}
				req.HeadCommit = now.GetHeadCommit()
				if _, err := c.control.DeletePreview(ctx, req); err != nil {
					return "", unknownPreview(failed("failed to remove the preview", err))
				}
				return req.RepositoryId + pullRequestText(req.PullRequest), nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask.")
	return ofPullRequest(cmd, &req.RepositoryId, &req.PullRequest)
}

func newPreviewExtend(t *tool) *cobra.Command {
	req := &controlv1.ExtendPreviewRequest{}
	var by time.Duration
	cmd := &cobra.Command{
		Use:   "extend",
		Short: "Retain the preview of a pull request beyond its ttl, or bring it back after that.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully extended the preview of %s", func(ctx context.Context, c *client) (string, error) {
				now, err := c.preview(ctx, req.RepositoryId, req.PullRequest)
				if err != nil {
					return "", err
				}
				req.HeadCommit, req.UntilMs = now.GetHeadCommit(), t.now().Add(by).UnixMilli()
				if _, err := c.control.ExtendPreview(ctx, req); err != nil {
					return "", unknownPreview(failed("failed to extend the preview", err))
				}
				return fmt.Sprintf("%s%s until %s", req.RepositoryId, pullRequestText(req.PullRequest), instant(req.UntilMs)), nil
			})
		},
	}
	cmd.Flags().DurationVar(&by, "for", 24*time.Hour, "How long from now the preview is retained, up to 720h.")
	return ofPullRequest(cmd, &req.RepositoryId, &req.PullRequest)
}

// preview reads the preview of a pull request.
func (c *client) preview(ctx context.Context, repository string, number int32) (*controlv1.Preview, error) {
	resp, err := c.control.GetPreview(ctx, &controlv1.GetPreviewRequest{RepositoryId: repository, PullRequest: number})
	if err != nil {
		return nil, unknownPreview(failed("failed to get the preview", err))
	}
	return resp.GetPreview(), nil
}
