package control

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// ListStageLogs returns the logs of a deployment's stages by stage ID. If they exceed the
// size of a response, the oldest blocks of a stage are replaced by one line.
func (s *apiService) ListStageLogs(ctx context.Context, req *apiservice.ListStageLogsRequest) (*apiservice.ListStageLogsResponse, error) {
	// The deployment is read before the logs: a stage that has ended by then
	// has all of its log stored.
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	if err != nil {
		return nil, named(err, "Deployment is not found")
	}
	logs, err := s.store.StageLogs(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	resp := &apiservice.ListStageLogsResponse{StageLogs: map[string]*apiservice.StageLog{}}
	left := maxResponse
	for i, stage := range d.Stages {
		if len(logs[stage.ID]) == 0 && stage.Name == deploy.StageRollback {
			continue
		}
		// Each stage gets an equal share of the remaining size.
		log := &apiservice.StageLog{Blocks: newest(logs[stage.ID], left/(len(d.Stages)-i)), Completed: stage.Status.Completed()}
		left -= proto.Size(log) + len(stage.ID) + perField
		resp.StageLogs[text(stage.ID)] = log
	}
	return resp, nil
}

// newest converts the newest blocks that fit in size bytes.
func newest(blocks []deploy.LogBlock, size int) []*modelv1.LogBlock {
	const reserve = 256 // for the line about omitted blocks
	var out []*modelv1.LogBlock
	first := len(blocks)
	for size -= reserve; first > 0; first-- {
		m := logBlock(blocks[first-1])
		if size -= proto.Size(m) + perField; size < 0 {
			break
		}
		out = append(out, m)
	}
	if first > 0 {
		out = append(out, omitted(blocks[first-1], first))
	}
	slices.Reverse(out)
	return out
}

// omitted returns the block that replaces count blocks, the last of which is last.
func omitted(last deploy.LogBlock, count int) *modelv1.LogBlock {
	last.Severity = deploy.SeverityInfo
	last.Log = fmt.Sprintf("(%d older log entries are left out here: the response would be too large)", count)
	return logBlock(last)
}
