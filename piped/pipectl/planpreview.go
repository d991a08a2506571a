package pipectl

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previewInterval is the longest interval of polling for the results.
const previewInterval = 10 * time.Second

func newPlanPreview(t *tool) *cobra.Command {
	p := &planPreview{}
	cmd := &cobra.Command{
		Use:   "plan-preview",
		Short: "Show what a change would deploy.",
		Long: `Show what a change would deploy. --out writes it into a file as JSON. With
--fail-on-missing a repository that no agent handles is an error.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd, t) },
	}
	flags := cmd.Flags()
	flags.StringVar(&p.req.RepoRemoteUrl, "repo-remote-url", "", "The remote URL of the Git repository, as the agent's configuration has it.")
	flags.StringVar(&p.req.HeadBranch, "head-branch", "", "The branch with the change.")
	flags.StringVar(&p.req.HeadCommit, "head-commit", "", "The hash of the commit with the change.")
	flags.StringVar(&p.req.BaseBranch, "base-branch", "", "The branch that the change is meant for.")
	flags.StringVar(&p.file, "out", "", "Write the result to this file, too, as JSON.")
	flags.DurationVar(&p.timeout, "timeout", 10*time.Minute, "The longest time to wait.")
	flags.DurationVar(&p.handleTimeout, "piped-handle-timeout", 5*time.Minute, "The longest time that the agent may take.")
	flags.StringSliceVar(&p.sortKeys, "sort-label-keys", nil, "The labels to sort the applications by, before their names.")
	flags.BoolVar(&p.failOnMissing, "fail-on-missing", false, "Fail when no agent handles the repository.")
	cmd.AddCommand(newPlanPreviewList(t), newPlanPreviewGet(t))
	return required(cmd, "repo-remote-url", "head-branch", "head-commit", "base-branch")
}

type planPreview struct {
	req                    apiservice.RequestPlanPreviewRequest
	file                   string
	timeout, handleTimeout time.Duration
	sortKeys               []string
	failOnMissing          bool
}

// run requests the preview, waits for the results of all agents or the end of the time, and
// prints or writes them. A plan that cannot be made is a result, no error.
func (p *planPreview) run(cmd *cobra.Command, t *tool) error {
	c, err := t.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
	defer cancel()
	out := cmd.OutOrStdout()
	p.req.Timeout = int64(p.handleTimeout.Seconds())
	resp, err := c.RequestPlanPreview(ctx, &p.req)
	if err != nil {
		fmt.Fprintf(out, "Failed to request plan-preview: %v\n", err)
		return failed("failed to request plan-preview", err)
	}
	if len(resp.GetCommands()) == 0 {
		fmt.Fprintln(out, "There is no piped that is handling the given Git repository")
		return p.missing()
	}
	fmt.Fprintf(out, "Requested plan-preview, waiting for its results (commands: %v)\n", resp.GetCommands())
	results, err := p.wait(ctx, cmd, c, resp.GetCommands())
	if err != nil {
		return err
	}
	return p.write(cmd, readable(results, p.sortKeys))
}

// wait polls for the results. The agent answers NotFound before they are complete.
func (p *planPreview) wait(ctx context.Context, cmd *cobra.Command, c *client, commands []string) ([]*modelv1.PlanPreviewCommandResult, error) {
	req := &apiservice.GetPlanPreviewResultsRequest{Commands: commands, CommandHandleTimeout: int64(p.handleTimeout.Seconds())}
	out := cmd.OutOrStdout()
	for pause := firstDelay; ; pause = min(2*pause, previewInterval) {
		if !pauseFor(ctx, pause) {
			return nil, p.stopped(ctx)
		}
		resp, err := c.GetPlanPreviewResults(ctx, req)
		switch {
		case err == nil:
			return resp.GetResults(), nil
		case ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded:
			continue // pauseFor detects the end of ctx
		case status.Code(err) != codes.NotFound:
			fmt.Fprintf(out, "Failed to retrieve plan-preview results: %v\n", err)
			return nil, failed("failed to retrieve plan-preview results", err)
		}
		fmt.Fprintf(out, "%s\nwaiting...\n", clean(status.Convert(err).Message()))
	}
}

// missing returns the error for a repository that no agent handles, if that is an
// error.
func (p *planPreview) missing() error {
	if !p.failOnMissing {
		return nil
	}
	return hint(fmt.Errorf("no agent handles the repository %s with the branch %s", p.req.RepoRemoteUrl, p.req.BaseBranch),
		"'pipectl status' shows the repositories of the agent: give the remote as it stands there")
}

func (p *planPreview) stopped(ctx context.Context) error {
	if ctx.Err() == context.Canceled {
		return fmt.Errorf("stopped waiting for the plan-preview: %w", ctx.Err())
	}
	return hint(fmt.Errorf("waited %s for the plan-preview: %w", p.timeout, context.DeadlineExceeded), "wait longer with --timeout; 'pipectl status' shows whether the agent is busy")
}

// write prints the result, and writes it to the file if configured.
func (p *planPreview) write(cmd *cobra.Command, r *previewResult) error {
	if _, err := fmt.Fprint(cmd.OutOrStdout(), r.text()); err != nil || p.file == "" {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("failed to write the result as JSON: %w", err)
	}
	if err := os.WriteFile(p.file, data, 0o644); err != nil {
		return hint(fmt.Errorf("failed to write the result: %w", err), "check --out")
	}
	return nil
}
