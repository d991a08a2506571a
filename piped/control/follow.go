package control

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// logPage is the number of log blocks that a call reads at once.
const logPage = 64

// FollowStageLogs streams the logs of a deployment's stages. It sends stored blocks only,
// so that a restart of the agent neither loses nor changes any.
func (s *controlService) FollowStageLogs(req *controlv1.FollowStageLogsRequest, stream grpc.ServerStreamingServer[controlv1.FollowStageLogsResponse]) error {
	ctx := stream.Context()
	sub := s.hub.subscribe(&deploymentFilter{ids: []string{req.DeploymentId}}, true)
	defer sub.close()
	d, err := s.deployments.do(ctx, scopeKey(ctx)+req.DeploymentId, func(ctx context.Context) (deploy.Deployment, error) {
		return s.store.Deployment(ctx, req.DeploymentId)
	})
	if err != nil {
		return err
	}
	if req.StageId != "" && d.Stage(req.StageId) == nil {
		return noStage(d, req.StageId)
	}
	f := follower{logAfter: s.logAfter, stream: stream, only: req.StageId, sent: map[string]int64{}, done: map[string]bool{}}
	for stage, index := range req.AfterIndex {
		f.sent[stage] = index
	}
	for {
		// d was read before its logs, so all blocks of a stage that has ended in d are
		// stored.
		if err := f.send(ctx, d); err != nil {
			return err
		}
		if req.NoFollow || f.finished(d) {
			return nil
		}
		if err := sub.wait(ctx); err != nil {
			return err
		}
		changed, err := sub.take()
		if err != nil {
			return err
		}
		for _, newer := range changed {
			if newer.revision > d.Revision {
				d = *newer.state
			}
		}
	}
}

func noStage(d deploy.Deployment, id string) error {
	if len(d.Stages) == 0 {
		return deploy.Errorf(deploy.NotFound, "deployment %s has no stage %s: it is %s and has no stages yet; leave stage_id empty to follow those it gets", d.ID, id, d.Status)
	}
	var all []string
	for _, stage := range d.Stages {
		all = append(all, stage.ID+" ("+stage.Name+")")
	}
	return deploy.Errorf(deploy.NotFound, "deployment %s has no stage %s: its stages are %s", d.ID, id, strings.Join(all, ", "))
}

// logAfter returns the next page of a stage's log. Concurrent followers of one log share
// the read.
func (s *controlService) logAfter(ctx context.Context, deploymentID, stageID string, index int64) ([]deploy.LogBlock, error) {
	key := fmt.Sprintf("%s%s/%s/%d", scopeKey(ctx), deploymentID, stageID, index)
	return s.logs.do(ctx, key, func(ctx context.Context) ([]deploy.LogBlock, error) {
		return s.store.StageLogAfter(ctx, deploymentID, stageID, index, logPage)
	})
}

// follower is one call that follows the logs of a deployment.
type follower struct {
	logAfter func(ctx context.Context, deploymentID, stageID string, index int64) ([]deploy.LogBlock, error)
	stream   grpc.ServerStreamingServer[controlv1.FollowStageLogsResponse]
	only     string           // stage ID; "" means all
	sent     map[string]int64 // by stage ID: index of the last sent block
	done     map[string]bool  // by stage ID: the log is complete
}

// finished reports whether all logs are complete.
func (f *follower) finished(d deploy.Deployment) bool {
	return d.Status.Completed() || f.done[f.only]
}

// send sends the new blocks of d's stages.
func (f *follower) send(ctx context.Context, d deploy.Deployment) error {
	for _, stage := range d.Stages {
		if f.done[stage.ID] || f.only != "" && f.only != stage.ID || stage.Status == deploy.StageNotStarted {
			continue
		}
		if err := f.sendStage(ctx, d.ID, stage.ID, stage.Status.Completed() || d.Status.Completed()); err != nil {
			return err
		}
	}
	return nil
}

// sendStage sends the new blocks of one stage; ended means that no more will be added.
func (f *follower) sendStage(ctx context.Context, deploymentID, stageID string, ended bool) error {
	for {
		index, has := f.sent[stageID]
		if !has {
			index = -1
		}
		blocks, err := f.logAfter(ctx, deploymentID, stageID, index)
		if err != nil {
			return err
		}
		messages := make([]*modelv1.LogBlock, len(blocks))
		for i, b := range blocks {
			messages[i] = logBlock(b)
		}
		n := fit(messages)
		last := n == len(blocks) && n < logPage
		resp := &controlv1.FollowStageLogsResponse{StageId: text(stageID), Blocks: messages[:n], Completed: last && ended}
		if n > 0 || resp.Completed {
			if err := f.stream.Send(resp); err != nil {
				return err
			}
		}
		if n > 0 {
			f.sent[stageID] = blocks[n-1].Index
		}
		if last {
			f.done[stageID] = resp.Completed
			return nil
		}
	}
}
