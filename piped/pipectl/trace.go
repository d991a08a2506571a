package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newTrace(t *tool) *cobra.Command {
	req := &controlv1.GetDeploymentTraceRequest{}
	cmd := &cobra.Command{
		Use:   "trace [COMMIT | EVENT | REPOSITORY#PULL-REQUEST]",
		Short: "Show what came of a commit, an event, a pull request or a deployment.",
		Long: `Show what came of a commit, an event, a pull request or a deployment, as a tree:
events, the commits that they wrote, the deployments of these and of their chains
with the time in each status, and rollouts.

A commit is a hash or at least its first seven digits; it can also be the source
commit that an event was registered with. An event or a deployment is an ID. Flags
say what is meant where the argument does not.

The agent knows the commits of a pull request from its plan previews (the head), from
the Git host if it writes comments there (merged), and from subjects of commits that
name it, as merges and squashes of GitHub and Gitea do (named).`,
		Example: `  pipectl trace 1f2ac83
  pipectl trace apps#12
  pipectl trace --deployment-id=web`,
		RunE: func(cmd *cobra.Command, args []string) error {
			either, err := traced(req, args)
			if err != nil {
				return err
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.DeploymentTrace, error) {
				resp, err := c.control.GetDeploymentTrace(ctx, req)
				if either != nil && status.Code(err) == codes.NotFound {
					resp, err = c.control.GetDeploymentTrace(ctx, either)
				}
				if err != nil {
					return nil, failed("failed to get the trace", err)
				}
				return resp.GetTrace(), nil
			}, (*printer).trace)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Commit, "commit", "", "The commit.")
	flags.StringVar(&req.EventId, "event-id", "", "The event.")
	flags.Int32Var(&req.PullRequest, "pull-request", 0, "The number of the pull request, with --repository.")
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	flags.StringVar(&req.RepositoryId, "repository", "", "The repository ID of the pull request or the commit.")
	cmd.MarkFlagsMutuallyExclusive("commit", "event-id", "pull-request", "deployment-id")
	cmd = required(cmd)
	cmd.Args = cobra.MaximumNArgs(1)
	return cmd
}

// traced completes a request by the argument, if there is one. An ID may be that of an event or
// a deployment: either is the other request.
func traced(req *controlv1.GetDeploymentTraceRequest, args []string) (either *controlv1.GetDeploymentTraceRequest, err error) {
	flagged := req.Commit != "" || req.EventId != "" || req.PullRequest != 0 || req.DeploymentId != ""
	usage := "give a commit, the ID of an event or a deployment, or REPOSITORY#NUMBER, or one of --commit, --event-id, --pull-request and --deployment-id"
	switch {
	case len(args) == 0 && flagged:
		return nil, nil
	case len(args) == 0 || flagged:
		return nil, hint(errors.New("exactly one thing can be traced"), "%s", usage)
	}
	name := args[0]
	repository, digits, isPullRequest := strings.Cut(name, "#")
	switch {
	case isPullRequest:
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n <= 0 {
			return nil, hint(fmt.Errorf("%q has no number of a pull request", name), "write it as REPOSITORY#NUMBER, such as apps#12")
		}
		req.PullRequest = int32(n)
		if repository != "" {
			req.RepositoryId = repository
		}
	case uuid.Validate(name) == nil:
		req.EventId = name
		return &controlv1.GetDeploymentTraceRequest{DeploymentId: name}, nil
	case isHash(name):
		req.Commit = name
	default:
		return nil, hint(fmt.Errorf("%q is neither a commit nor an ID nor a pull request", name), "%s", usage)
	}
	return nil, nil
}

// trace prints a tree: each commit below the first event that wrote it.
func (p *printer) trace(m *controlv1.DeploymentTrace) error {
	shown := map[*controlv1.TracedCommit]bool{}
	var errs []error
	for _, e := range m.GetEvents() {
		errs = append(errs, p.tracedEvent(e))
		for _, c := range m.GetCommits() {
			if len(c.GetEventIds()) > 0 && c.GetEventIds()[0] == e.GetEventId() {
				shown[c] = true
				errs = append(errs, p.tracedCommit(c, "  "))
			}
		}
	}
	for _, c := range m.GetCommits() {
		if !shown[c] {
			errs = append(errs, p.tracedCommit(c, ""))
		}
	}
	if m.GetDeploymentsTruncated() {
		errs = append(errs, p.linef("%s", p.paint(yellow, "There are more deployments: 'pipectl deployment list' lists all.")))
	}
	if m.GetRolloutsTruncated() {
		errs = append(errs, p.linef("%s", p.paint(yellow, "There are more rollouts: 'pipectl application rollouts' lists all.")))
	}
	return errors.Join(errs...)
}

// parts joins the texts that are not empty.
func parts(texts ...string) string {
	var out []string
	for _, text := range texts {
		if text = clean(text); text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, "  ")
}

func (p *printer) tracedEvent(e *controlv1.TracedEvent) error {
	state := cell{}
	if e.Status != nil {
		state = colored(strings.TrimPrefix(e.GetStatus().String(), "EVENT_"))
	}
	source := ""
	if e.GetSourceCommit() != "" {
		source = "of commit " + shortHash(e.GetSourceCommit())
	}
	line := parts("Event "+e.GetEventId(), e.GetName()+"="+firstLine(e.GetData()), source, p.age(e.GetRegisteredAtMs())+" ago", e.GetPullRequestUrl())
	if state.text != "" {
		line += "  " + p.paint(state.color, state.text)
	}
	return errors.Join(p.linef("%s", line), p.indented("  ", e.GetStatusDescription()))
}

// indented prints a text on a line of its own; nothing for "".
func (p *printer) indented(indent, text string) error {
	if text = clean(text); text == "" {
		return nil
	}
	return p.linef("%s%s", indent, p.paint(faint, text))
}

func (p *printer) tracedCommit(c *controlv1.TracedCommit, indent string) error {
	var pulls []string
	for _, r := range c.GetPullRequests() {
		pulls = append(pulls, fmt.Sprintf("pull request %d (%s)", r.GetNumber(), strings.ToLower(word(r.GetLink(), "PULL_REQUEST_LINK_"))))
	}
	line := parts("Commit "+shortHash(c.GetHash()), c.GetRepositoryId(), firstLine(c.GetMessage()), c.GetAuthor(), strings.Join(pulls, ", "))
	if at := p.age(c.GetCommittedAtMs()); at != "" {
		line += "  " + at + " ago"
	}
	errs := []error{p.linef("%s%s", indent, line)}
	if len(c.GetDeployments()) == 0 {
		errs = append(errs, p.indented(indent+"  ", "no deployment"))
	}
	for _, d := range c.GetDeployments() {
		errs = append(errs, p.tracedDeployment(d, indent+"  "))
	}
	return errors.Join(errs...)
}

func (p *printer) tracedDeployment(d *controlv1.TracedDeployment, indent string) error {
	b := d.GetDeployment()
	chained := ""
	if d.GetChainId() != "" {
		chained = fmt.Sprintf("block %d of chain %s", d.GetChainBlock(), d.GetChainId())
	}
	state := deploymentStatus(b.GetStatus())
	line := fmt.Sprintf("%s%s  %s", indent, p.paint(state.color, state.text), parts(d.GetApplicationName(), b.GetDeploymentId(), p.phases(d), chained))
	errs := []error{p.linef("%s", line)}
	if b.GetStatus().String() != "DEPLOYMENT_SUCCESS" {
		errs = append(errs, p.indented(indent+"  ", b.GetStatusReason()))
	}
	for _, r := range d.GetRollouts() {
		outcome := colored(word(r.GetOutcome(), rolloutOutcomePrefix))
		took := ""
		if r.GetCompletedAtMs() != 0 {
			ms := r.GetCompletedAtMs() - r.GetStartedAtMs()
			took = formatDuration(&ms)
		}
		name := r.GetWorkloadName()
		if r.GetWorkloadNamespace() != "" {
			name = r.GetWorkloadNamespace() + "/" + name
		}
		errs = append(errs, p.linef("%s  %s  %s", indent, p.paint(outcome.color, outcome.text), parts(r.GetWorkloadKind()+" "+name, r.GetCluster(), took, r.GetReason())))
	}
	return errors.Join(errs...)
}

// phases formats the time that a deployment was in each status.
func (p *printer) phases(d *controlv1.TracedDeployment) string {
	var out []string
	for _, phase := range d.GetPhases() {
		end := phase.GetToMs()
		if end == 0 {
			if d.GetDeployment().GetCompletedAtMs() != 0 {
				continue // a final status has no duration
			}
			end = max(p.now.UnixMilli(), phase.GetFromMs())
		}
		took := time.Duration(end-phase.GetFromMs()) * time.Millisecond
		ms := took.Milliseconds()
		out = append(out, word(phase.GetStatus(), "DEPLOYMENT_")+" "+formatDuration(&ms))
	}
	return strings.Join(out, ", ")
}
