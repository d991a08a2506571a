package control

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// maxBlocks is how many of a stage's newest log blocks are read for one
// response.
const maxBlocks = 20000

// ListStageLogs returns the logs of a deployment's stages by stage ID. What
// does not fit in a response is left out from the oldest, each stage keeping an
// equal share, and a first line says so.
func (s *apiService) ListStageLogs(ctx context.Context, req *apiservice.ListStageLogsRequest) (*apiservice.ListStageLogsResponse, error) {
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	if err != nil {
		return nil, named(err, "Deployment is not found")
	}
	resp := &apiservice.ListStageLogsResponse{StageLogs: map[string]*apiservice.StageLog{}}
	share := maxResponse / max(1, len(d.Stages))
	for _, stage := range d.Stages {
		blocks, err := s.store.StageLogs(ctx, d.ID, stage.ID, maxBlocks)
		if err != nil {
			return nil, err
		}
		if len(blocks) == 0 && stage.Name == deploy.StageRollback {
			continue
		}
		resp.StageLogs[text(stage.ID)] = &apiservice.StageLog{Blocks: newest(blocks, share), Completed: stage.Status.Completed()}
	}
	return resp, nil
}

// newest converts the newest blocks that fit in size bytes.
func newest(blocks []deploy.LogBlock, size int) []*modelv1.LogBlock {
	const reserve = 256 // for the line that says what is missing
	var out []*modelv1.LogBlock
	first := len(blocks)
	for size -= reserve; first > 0; first-- {
		m := logBlock(blocks[first-1])
		if size -= proto.Size(m) + 8; size < 0 {
			break
		}
		out = append(out, m)
	}
	if first > 0 {
		out = append(out, omitted(blocks[first-1], first))
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// omitted stands in for the count blocks that end with last.
func omitted(last deploy.LogBlock, count int) *modelv1.LogBlock {
	last.Severity = deploy.SeverityInfo
	last.Log = fmt.Sprintf("(%d older log entries are left out here: the response would be too large)", count)
	return logBlock(last)
}
