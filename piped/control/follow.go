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

// logPage is how many blocks of a log a call holds at once.
const logPage = 64

// FollowStageLogs streams the logs of a deployment's stages. What it sends is
// stored, so that no block is lost or told otherwise by a restart of the agent.
func (s *controlService) FollowStageLogs(req *controlv1.FollowStageLogsRequest, stream grpc.ServerStreamingServer[controlv1.FollowStageLogsResponse]) error {
	ctx := stream.Context()
	sub := s.hub.subscribe(&deploymentFilter{ids: []string{req.DeploymentId}}, true)
	defer sub.close()
	d, err := s.deployments.do(ctx, req.DeploymentId, func(ctx context.Context) (deploy.Deployment, error) {
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
		// The deployment is as it was before the logs are read: of a stage that had
		// ended by then everything is stored.
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

// logAfter returns the next page of a stage's log. Those who follow one log are
// told together that it has grown, and share what they read of it.
func (s *controlService) logAfter(ctx context.Context, deploymentID, stageID string, index int64) ([]deploy.LogBlock, error) {
	key := fmt.Sprintf("%s/%s/%d", deploymentID, stageID, index)
	return s.logs.do(ctx, key, func(ctx context.Context) ([]deploy.LogBlock, error) {
		return s.store.StageLogAfter(ctx, deploymentID, stageID, index, logPage)
	})
}

// follower is one call on its way through the logs of a deployment.
type follower struct {
	logAfter func(ctx context.Context, deploymentID, stageID string, index int64) ([]deploy.LogBlock, error)
	stream   grpc.ServerStreamingServer[controlv1.FollowStageLogsResponse]
	only     string           // a stage ID; "" follows all
	sent     map[string]int64 // by stage ID, the index of the last block the caller has
	done     map[string]bool  // by stage ID: nothing more follows for it
}

// finished reports whether nothing more follows.
func (f *follower) finished(d deploy.Deployment) bool {
	return d.Status.Completed() || f.done[f.only]
}

// send sends what there is in the logs of d's stages and is not sent yet.
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

// sendStage does it for one stage; ended tells that nothing is added any more.
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
