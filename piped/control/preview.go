package control

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	// previewKept is how long results are retained, as in PipeCD.
	previewKept = 24 * time.Hour
	// previewTimeout is the default time limit of a preview, as in PipeCD.
	previewTimeout = 5 * time.Minute
	// maxPreviewTimeout is the maximal time limit that a request can set.
	maxPreviewTimeout = time.Hour
)

// planPreviews reads results of plan previews. NotFound: there is no result, or it was
// deleted.
type planPreviews interface {
	PlanPreview(ctx context.Context, commandID string) (deploy.PlanPreview, error)
}

// RequestPlanPreview requests a plan preview of a configured repository and base branch,
// given exactly as in the configuration. As in PipeCD it creates no command for any other
// and none while the agent is disabled.
func (s *apiService) RequestPlanPreview(ctx context.Context, req *apiservice.RequestPlanPreviewRequest) (*apiservice.RequestPlanPreviewResponse, error) {
	timeout := previewTime(req.Timeout)
	record, err := s.store.Agent(ctx)
	if err != nil {
		return nil, err
	}
	for _, repo := range s.agent.Describe().Repositories {
		if record.Disabled || repo.Remote != req.RepoRemoteUrl || repo.Branch != req.BaseBranch {
			continue
		}
		c, err := s.store.CreateCommand(ctx, deploy.Command{
			ID: s.newID(), Type: deploy.CommandBuildPlanPreview, Commander: callerOf(ctx).Subject,
			PlanPreview: &deploy.PlanPreviewRequest{
				RepoID: repo.ID, HeadBranch: req.HeadBranch, HeadCommit: req.HeadCommit, BaseBranch: req.BaseBranch, Timeout: timeout,
			},
		})
		return &apiservice.RequestPlanPreviewResponse{Commands: []string{c.ID}}, err
	}
	return &apiservice.RequestPlanPreviewResponse{}, nil
}

// GetPlanPreviewResults returns the results of plan previews once all have a result or have
// timed out. Before that it returns NotFound, and clients repeat the call. Therefore no other
// error may be NotFound.
func (s *apiService) GetPlanPreviewResults(ctx context.Context, req *apiservice.GetPlanPreviewResultsRequest) (*apiservice.GetPlanPreviewResultsResponse, error) {
	wait := cmp.Or(previewTime(req.CommandHandleTimeout), previewTimeout)
	var previews []deploy.PlanPreview
	for _, id := range req.Commands {
		p, err := s.planPreview(ctx, id, wait)
		if err != nil {
			return nil, err
		}
		previews = append(previews, p)
	}
	record, err := s.store.Agent(ctx)
	if err != nil {
		return nil, err
	}
	name := s.convert.name(s.agent.Describe(), record)
	resp := &apiservice.GetPlanPreviewResultsResponse{}
	for _, p := range previews {
		resp.Results = append(resp.Results, s.convert.planPreview(p, name))
	}
	if proto.Size(resp) > maxResponse {
		return nil, deploy.Errorf(deploy.Illegal, "the results of these %d plan previews are larger than a response can be: ask for one of them at a time", len(req.Commands))
	}
	return resp, nil
}

// previewTime returns the seconds of a request as a duration within limits.
func previewTime(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(maxPreviewTimeout/time.Second))) * time.Second
}

// planPreview returns the result of one plan preview.
func (s *apiService) planPreview(ctx context.Context, id string, wait time.Duration) (p deploy.PlanPreview, err error) {
	c, err := s.store.Command(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		return p, deploy.Errorf(deploy.Illegal, "there is no plan preview %s: request one", id)
	case err != nil:
		return p, err
	case c.Type != deploy.CommandBuildPlanPreview:
		return p, deploy.Errorf(deploy.Illegal, "command %s is not a plan preview", id)
	case c.Status == deploy.CommandOpen && s.now().Sub(c.CreatedAt) <= wait:
		return p, status.Errorf(codes.NotFound, "Waiting for result of command %s from piped %s", id, s.convert.pipedID)
	case c.Status == deploy.CommandOpen:
		return deploy.PlanPreview{CommandID: id, Error: "Timed out, maybe the Piped is offline currently."}, nil
	}
	p, err = s.store.PlanPreview(ctx, id)
	if deploy.IsKind(err, deploy.NotFound) || err == nil && s.now().Sub(p.At) > previewKept {
		err = deploy.Errorf(deploy.Illegal, "the result of plan preview %s is older than %s and was removed: request another", id, previewKept)
	}
	return p, err
}

// planPreview converts a result. It has no URL, since the agent has no web pages.
func (c converter) planPreview(p deploy.PlanPreview, pipedName string) *modelv1.PlanPreviewCommandResult {
	m := &modelv1.PlanPreviewCommandResult{CommandId: text(p.CommandID), PipedId: c.pipedID, PipedName: text(pipedName), Error: text(p.Error)}
	for _, a := range p.Results {
		m.Results = append(m.Results, &modelv1.ApplicationPlanPreviewResult{
			ApplicationId: text(a.ApplicationID), ApplicationName: text(a.Name), ApplicationKind: kindNumber(a.Kind), ApplicationDirectory: text(a.Dir),
			PipedId: c.pipedID, ProjectId: c.projectID, Labels: texts(a.Labels), HeadBranch: text(a.HeadBranch), HeadCommit: text(a.HeadCommit),
			SyncStrategy: strategy(a.Strategy), PlanSummary: []byte(text(a.Summary)), PlanDetails: []byte(text(a.Details)), NoChange: a.NoChange,
			Error: text(a.Error), CreatedAt: seconds(a.At),
		})
	}
	return m
}
