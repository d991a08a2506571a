package pipectl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// maxTail is the most entries that the API returns at once.
const maxTail = 1000

// logPart shows a part of the logs of a deployment's stages: the last entries, or those that have a
// text.
type logPart struct {
	deploymentID, stageID string
	tail                  int32
	text                  string

	p     *printer
	c     *client
	names names
}

func (l *logPart) show(cmd *cobra.Command, t *tool) error {
	if l.tail < 0 || l.tail > maxTail {
		return fmt.Errorf("invalid tail %d: it must be between 1 and %d", l.tail, maxTail)
	}
	p, _, c, err := t.live(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	l.p, l.c = p, c
	resp, err := c.GetDeployment(cmd.Context(), &apiservice.GetDeploymentRequest{DeploymentId: l.deploymentID})
	if err != nil {
		return unknownDeployment(failed("failed to read the deployment", err))
	}
	l.names = stageNames(resp.GetDeployment())
	stages := l.names.order
	if l.stageID != "" {
		stages = []string{l.stageID}
	}
	for _, stage := range stages {
		if err := l.stage(cmd.Context(), stage); err != nil {
			return failed("failed to read stage logs", err)
		}
	}
	return nil
}

func (l *logPart) stage(ctx context.Context, id string) error {
	if l.text != "" {
		return l.grep(ctx, id)
	}
	resp, err := l.c.control.GetStageLog(ctx, &controlv1.GetStageLogRequest{DeploymentId: l.deploymentID, StageId: id, Limit: l.tail})
	if err != nil {
		return err
	}
	return l.p.print(resp, func(p *printer) error {
		for _, b := range resp.GetBlocks() {
			if err := p.block(l.names.of(id), b); err != nil {
				return err
			}
		}
		return nil
	})
}

// grep shows the matches of all pages of a search.
func (l *logPart) grep(ctx context.Context, id string) error {
	req := &controlv1.SearchStageLogRequest{DeploymentId: l.deploymentID, StageId: id, Text: l.text, Limit: maxTail}
	for {
		resp, err := l.c.control.SearchStageLog(ctx, req)
		if err != nil {
			return err
		}
		if err := l.p.print(resp, func(p *printer) error { return p.matches(l.names.of(id), resp.GetMatches()) }); err != nil || !resp.GetMore() {
			return err
		}
		req.AfterIndex = &resp.SearchedIndex
	}
}

// matches writes entries that a search has found, with their number after the stage.
func (p *printer) matches(stage string, list []*controlv1.StageLogMatch) error {
	for _, m := range list {
		b := &modelv1.LogBlock{Log: m.GetText(), Severity: m.GetSeverity(), CreatedAtMs: m.GetCreatedAtMs()}
		if err := p.block(fmt.Sprintf("%s:%d", stage, m.GetLine()), b); err != nil {
			return err
		}
	}
	return nil
}
