package pipectl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newDeploymentLogs(t *tool) *cobra.Command {
	req := &controlv1.FollowStageLogsRequest{}
	part := &logPart{}
	var on bool
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the logs of a deployment's stages, with --follow until it has ended.",
		Long: `Show the logs of a deployment's stages. With --follow, show them as they are
written until the deployment has ended, also over broken connections. --tail shows
the last entries of each stage, --grep those that have a text, with their number.`,
		Example: `  pipectl deployment logs --deployment-id=ID --tail=50
  pipectl deployment logs --deployment-id=ID --grep=ImagePullBackOff`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if on {
				return followLogs(cmd, t, req)
			}
			if part.tail != 0 || part.text != "" {
				part.deploymentID, part.stageID = req.DeploymentId, req.StageId
				return part.show(cmd, t)
			}
			if req.StageId != "" {
				return hint(fmt.Errorf("stage-id is for logs that are followed"), "add --follow, --tail or --grep, or omit --stage-id")
			}
			return showLogs(cmd, t, &req.DeploymentId)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.DeploymentId, "deployment-id", "", "The deployment ID.")
	flags.BoolVarP(&on, "follow", "f", false, "Show log entries as they come, as lines, until the deployment has ended.")
	flags.StringVar(&req.StageId, "stage-id", "", "With follow, tail or grep, the stage ID. Empty means all stages.")
	flags.Int32Var(&part.tail, "tail", 0, "Only the last entries of each stage, at most 1000.")
	flags.StringVar(&part.text, "grep", "", "Only entries that have this text, in upper or lower case.")
	cmd.MarkFlagsMutuallyExclusive("follow", "tail", "grep")
	return required(cmd, "deployment-id")
}

// showLogs prints what the stages of a deployment have logged so far. id points to the
// flag's value, since query replaces a name in it by the ID.
func showLogs(cmd *cobra.Command, t *tool, id *string) error {
	var stages names
	return query(cmd, t, formatJSON, func(ctx context.Context, c *client) (*apiservice.ListStageLogsResponse, error) {
		resp, err := c.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: *id})
		if err != nil {
			return nil, unknownDeployment(failed("failed to list stage logs", err))
		}
		if t.output == formatTable {
			stages = namesFor(ctx, c, *id)
		}
		return resp, nil
	}, func(p *printer, resp *apiservice.ListStageLogsResponse) error {
		for _, stage := range stages.ordered(resp.GetStageLogs()) {
			for _, b := range resp.GetStageLogs()[stage].GetBlocks() {
				if err := p.block(stages.of(stage), b); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// block writes a log entry; each line has the time and the stage.
func (p *printer) block(stage string, b *modelv1.LogBlock) error {
	c := plain
	switch b.GetSeverity() {
	case modelv1.LogSeverity_ERROR:
		c = red
	case modelv1.LogSeverity_SUCCESS:
		c = green
	}
	at := b.GetCreatedAtMs()
	if at == 0 {
		at = b.GetCreatedAt() * 1000
	}
	head := time.UnixMilli(at).UTC().Format(time.TimeOnly) + " " + clean(stage)
	for line := range strings.SplitSeq(strings.TrimRight(cleanLines(b.GetLog()), "\n"), "\n") {
		if err := p.linef("%s  %s", p.paint(faint, head), p.paint(c, line)); err != nil {
			return err
		}
	}
	return nil
}

// followLogs shows log entries as they are written. After a broken connection it
// resumes after the last received entries, without loss or repetition.
func followLogs(cmd *cobra.Command, t *tool, req *controlv1.FollowStageLogsRequest) error {
	p, log, c, err := t.live(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	var names names
	if p.format == formatTable {
		names = namesFor(cmd.Context(), c, req.DeploymentId)
	}
	req.AfterIndex = map[string]int64{}
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.FollowStageLogsResponse], error) {
		return c.control.FollowStageLogs(ctx, req)
	}
	err = follow(cmd.Context(), following{what: "stage logs", say: log.infof, tick: func() {}, ends: true}, open,
		func(m *controlv1.FollowStageLogsResponse) error {
			if names.of(m.GetStageId()) == m.GetStageId() && p.format == formatTable {
				names = namesFor(cmd.Context(), c, req.DeploymentId) // the deployment was planned meanwhile
			}
			for _, b := range m.GetBlocks() {
				req.AfterIndex[m.GetStageId()] = b.GetIndex()
			}
			return p.print(m, func(p *printer) error { return p.followed(names.of(m.GetStageId()), m) })
		})
	return unknownDeployment(err)
}

// followed prints the new log entries of a stage.
func (p *printer) followed(stage string, m *controlv1.FollowStageLogsResponse) error {
	for _, b := range m.GetBlocks() {
		if err := p.block(stage, b); err != nil {
			return err
		}
	}
	return nil
}

// names are the display names of a deployment's stages by ID.
type names struct {
	order []string
	byID  map[string]string
}

// stageNames returns the display names of stages. Stages with the same name get an
// index.
func stageNames(d *modelv1.Deployment) names {
	n, taken := names{byID: map[string]string{}}, map[string]bool{}
	for _, s := range d.GetStages() {
		name := s.GetName()
		if taken[name] {
			name = fmt.Sprintf("%s#%d", name, s.GetIndex())
		}
		taken[name] = true
		n.order = append(n.order, s.GetId())
		n.byID[s.GetId()] = name
	}
	return n
}

// of returns a stage's name, or its ID if unknown.
func (n names) of(id string) string {
	if name, ok := n.byID[id]; ok {
		return name
	}
	return id
}

// ordered returns the IDs of stages with a log in the order of the pipeline, unknown
// stages last.
func (n names) ordered(logs map[string]*apiservice.StageLog) []string {
	var known, others []string
	for _, id := range n.order {
		if logs[id] != nil {
			known = append(known, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(logs)) {
		if _, ok := n.byID[id]; !ok {
			others = append(others, id)
		}
	}
	return append(known, others...)
}

// namesFor requests the names of a deployment's stages. On errors it returns none.
func namesFor(ctx context.Context, c *client, deploymentID string) names {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: deploymentID})
	if err != nil {
		return names{}
	}
	return stageNames(resp.GetDeployment())
}
