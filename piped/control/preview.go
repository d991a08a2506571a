package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	// previewKept is how long results are retained, as in PipeCD.
	previewKept = 24 * time.Hour
	// previewTimeout is the default time limit of a preview, as in PipeCD.
	previewTimeout = 5 * time.Minute
	// maxPreviewTimeout is the maximal time limit that a request can set.
	maxPreviewTimeout = time.Hour
	// defaultPreviews is the default page size of ListPlanPreviews.
	defaultPreviews = 50
)

// planPreviews reads results of plan previews. NotFound: there is no result, or it was
// deleted.
type planPreviews interface {
	PlanPreview(ctx context.Context, commandID string) (deploy.PlanPreview, error)
	// PlanPreviews returns plan previews, the last requested first, and the cursor of the
	// next page, "" at the end.
	PlanPreviews(ctx context.Context, q store.PlanPreviewQuery) ([]deploy.PlanPreviewBrief, string, error)
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
			ID: s.newID(), Type: deploy.CommandBuildPlanPreview, Commander: callerOf(ctx).Subject, Account: callerOf(ctx).Account(),
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

// ListPlanPreviews lists plan previews, the last requested first.
func (s *controlService) ListPlanPreviews(ctx context.Context, req *controlv1.ListPlanPreviewsRequest) (*controlv1.ListPlanPreviewsResponse, error) {
	statuses, err := commandStatuses(req.Statuses)
	if err != nil {
		return nil, err
	}
	list, cursor, err := page(cmp.Or(req.Limit, defaultPreviews), func(limit int) ([]deploy.PlanPreviewBrief, string, error) {
		return s.store.PlanPreviews(ctx, store.PlanPreviewQuery{
			RepoID: req.RepositoryId, HeadBranch: req.HeadBranch, PullRequest: int(req.PullRequest), Statuses: statuses, Limit: limit, Cursor: req.Cursor,
		})
	}, planPreviewBrief)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListPlanPreviewsResponse{PlanPreviews: list, Cursor: cursor}, nil
}

// GetPlanPreview returns a plan preview with its changes by object.
func (s *controlService) GetPlanPreview(ctx context.Context, req *controlv1.GetPlanPreviewRequest) (*controlv1.GetPlanPreviewResponse, error) {
	list, _, err := s.store.PlanPreviews(ctx, store.PlanPreviewQuery{CommandIDs: []string{req.CommandId}})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, deploy.Errorf(deploy.NotFound, "there is no plan preview %s, or its result is older than %s and was removed: request another", req.CommandId, previewKept)
	}
	resp := &controlv1.GetPlanPreviewResponse{PlanPreview: planPreviewBrief(list[0])}
	if list[0].Status == deploy.CommandOpen {
		return resp, nil
	}
	p, err := s.store.PlanPreview(ctx, req.CommandId)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(p.Results))
	for i, a := range p.Results {
		ids[i] = a.ApplicationID
	}
	known, err := s.store.ApplicationsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, a := range p.Results {
		exists := slices.ContainsFunc(known, func(k deploy.Application) bool { return k.ID == a.ApplicationID })
		resp.Applications = append(resp.Applications, previewedApplication(a, exists))
	}
	return resp, nil
}

// previewedApplication converts the preview of an application, whose size is bounded where it is
// stored. Its changes name no cluster, because none was asked.
func previewedApplication(a deploy.ApplicationPreview, exists bool) *controlv1.PreviewedApplication {
	m := &controlv1.PreviewedApplication{
		ApplicationId: text(a.ApplicationID), ApplicationName: text(a.Name), Kind: kindNumber(a.Kind), Directory: text(a.Dir), Labels: texts(a.Labels),
		Exists: exists, Strategy: strategy(a.Strategy), Summary: text(a.Summary), NoChange: a.NoChange, Changes: plannedChanges("", a.Changes, maxResponse),
		ChangesLeftOut: int32(a.LeftOut), Warnings: textList(a.Warnings), Error: text(a.Error),
	}
	if len(a.Changes) == 0 {
		m.Details = text(a.Details)
	}
	return m
}

// previewHub distributes plan previews that were requested or have ended.
type previewHub = hub[deploy.PlanPreviewBrief, *controlv1.PlanPreviewBrief]

// newPreviewHub returns the hub of WatchPlanPreviews; the caller runs it.
func newPreviewHub(s Store) *previewHub {
	return newHub(watched[deploy.PlanPreviewBrief, *controlv1.PlanPreviewBrief]{
		store: s, topic: deploy.TopicCommand,
		read: func(ctx context.Context, ids []string) ([]deploy.PlanPreviewBrief, error) {
			list, _, err := s.PlanPreviews(ctx, store.PlanPreviewQuery{CommandIDs: ids})
			return list, err
		},
		version: func(b *deploy.PlanPreviewBrief) (string, int64) {
			if b.Status == deploy.CommandOpen {
				return b.CommandID, 1
			}
			return b.CommandID, 2
		},
		convert: planPreviewBrief,
	})
}

// previewFilter selects the plan previews of a watch.
type previewFilter struct {
	*controlv1.WatchPlanPreviewsRequest
}

func (f previewFilter) matches(b *deploy.PlanPreviewBrief) bool {
	return (f.RepositoryId == "" || f.RepositoryId == b.Request.RepoID) && (f.HeadBranch == "" || f.HeadBranch == b.Request.HeadBranch) &&
		(f.PullRequest == 0 || int(f.PullRequest) == b.Request.PullRequest) && (len(f.CommandIds) == 0 || slices.Contains(f.CommandIds, b.CommandID))
}

// mayMatch returns false for commands about applications.
func (f previewFilter) mayMatch(c deploy.Change) bool {
	return c.ApplicationID == "" && (len(f.CommandIds) == 0 || slices.Contains(f.CommandIds, c.ID))
}

// WatchPlanPreviews streams plan previews that are requested or end.
func (s *controlService) WatchPlanPreviews(req *controlv1.WatchPlanPreviewsRequest, stream grpc.ServerStreamingServer[controlv1.WatchPlanPreviewsResponse]) error {
	ctx := stream.Context()
	sub := s.previews.subscribe(previewFilter{req}, false)
	defer sub.close()
	if err := stream.Send(&controlv1.WatchPlanPreviewsResponse{CaughtUp: true}); err != nil {
		return err
	}
	var list []deploy.PlanPreviewBrief // the changed one as the caller may view it, if it may
	return sub.each(ctx, nil, func(b *deploy.PlanPreviewBrief) (seen bool, err error) {
		list, _, err = s.store.PlanPreviews(ctx, store.PlanPreviewQuery{CommandIDs: []string{b.CommandID}})
		return len(list) > 0, err
	}, func(*controlv1.PlanPreviewBrief) error {
		return stream.Send(&controlv1.WatchPlanPreviewsResponse{PlanPreview: planPreviewBrief(list[0])})
	})
}

func commandStatuses(list []modelv1.CommandStatus) ([]deploy.CommandStatus, error) {
	var out []deploy.CommandStatus
	for _, s := range list {
		if int(s) < 0 || int(s) >= len(deploy.CommandStatuses()) {
			return nil, deploy.Errorf(deploy.Invalid, "there is no command status %d: use one that command.proto names", s)
		}
		out = append(out, deploy.CommandStatuses()[s])
	}
	return out, nil
}

func planPreviewBrief(b deploy.PlanPreviewBrief) *controlv1.PlanPreviewBrief {
	m := &controlv1.PlanPreviewBrief{
		CommandId: text(b.CommandID), RepositoryId: text(b.Request.RepoID), HeadBranch: text(b.Request.HeadBranch), HeadCommit: text(b.Request.HeadCommit),
		BaseBranch: text(b.Request.BaseBranch), PullRequest: int32(b.Request.PullRequest), RequestedBy: text(b.Commander),
		Status:        modelv1.CommandStatus(modelv1.CommandStatus_value[commandPrefix+string(b.Status)]),
		RequestedAtMs: millis(b.RequestedAt), AnsweredAtMs: millis(b.At), Applications: int32(len(b.Outlines)), Error: text(b.Error),
	}
	for _, o := range b.Outlines {
		switch {
		case o.Failed:
			m.FailedApplications++
		case !o.NoChange:
			m.ChangedApplications++
		}
	}
	return m
}
