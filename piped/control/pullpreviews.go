package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// pullPreviews are the previews of pull requests in the store. They are errors of kind NotFound
// for a pull request without one, and Conflict for another head.
type pullPreviews interface {
	// PullPreviews returns all previews, those of a repository, or that of a pull request.
	PullPreviews(ctx context.Context, repoID string, number int) ([]deploy.PullPreview, error)
	DismissPullPreview(ctx context.Context, repoID string, number int, head, by string) error
	ExtendPullPreview(ctx context.Context, repoID string, number int, head string, until time.Time) error
}

// PodLines reads the last lines that the pods of an application have written. They contain no
// decrypted secrets.
type PodLines interface {
	LastPodLines(ctx context.Context, app deploy.Application, lines int) ([]deploy.PodLines, error)
}

// aboutPreview is a request about the preview of a pull request.
type aboutPreview interface {
	GetRepositoryId() string
	GetPullRequest() int32
}

// Limits of previews.
const (
	previewTail    = 100
	maxPreviewTail = 1000
	maxExtension   = 30 * 24 * time.Hour
)

// previewPhases maps phases to their wire values.
var previewPhases = map[deploy.PullPreviewPhase]controlv1.PreviewPhase{
	deploy.PreviewWaiting:  controlv1.PreviewPhase_PREVIEW_PHASE_WAITING,
	deploy.PreviewBuilding: controlv1.PreviewPhase_PREVIEW_PHASE_BUILDING,
	deploy.PreviewReady:    controlv1.PreviewPhase_PREVIEW_PHASE_READY,
	deploy.PreviewFailed:   controlv1.PreviewPhase_PREVIEW_PHASE_FAILED,
	deploy.PreviewRemoved:  controlv1.PreviewPhase_PREVIEW_PHASE_REMOVED,
}

// ListPreviews lists the previews of open pull requests.
func (s *controlService) ListPreviews(ctx context.Context, req *controlv1.ListPreviewsRequest) (*controlv1.ListPreviewsResponse, error) {
	for _, phase := range req.Phases {
		if _, ok := controlv1.PreviewPhase_name[int32(phase)]; !ok {
			return nil, deploy.Errorf(deploy.Invalid, "there is no phase %d: use one that control/v1/preview.proto names", phase)
		}
	}
	list, err := s.store.PullPreviews(ctx, req.RepositoryId, int(req.PullRequest))
	if err != nil {
		return nil, err
	}
	resp := &controlv1.ListPreviewsResponse{}
	for _, p := range list {
		if len(req.Phases) == 0 || slices.Contains(req.Phases, previewPhases[p.Phase]) {
			if m := pullPreview(viewOf(ctx), p); m != nil {
				resp.Previews = append(resp.Previews, m)
			}
		}
	}
	return resp, holdsAll(resp.Previews, "previews", "name a repository or states")
}

// GetPreview returns the preview of a pull request.
func (s *controlService) GetPreview(ctx context.Context, req *controlv1.GetPreviewRequest) (*controlv1.GetPreviewResponse, error) {
	p, err := s.pullPreview(ctx, req)
	if err != nil {
		return nil, err
	}
	return &controlv1.GetPreviewResponse{Preview: pullPreview(viewOf(ctx), p)}, nil
}

// pullPreview returns the preview of a pull request of which the caller may view an application.
func (s *controlService) pullPreview(ctx context.Context, req aboutPreview) (deploy.PullPreview, error) {
	list, err := s.store.PullPreviews(ctx, req.GetRepositoryId(), int(req.GetPullRequest()))
	if err != nil {
		return deploy.PullPreview{}, err
	}
	if len(list) == 0 || pullPreview(viewOf(ctx), list[0]) == nil {
		return deploy.PullPreview{}, deploy.Errorf(deploy.NotFound, "pull request %s#%d has no preview", req.GetRepositoryId(), req.GetPullRequest())
	}
	return list[0], nil
}

// pullPreview converts a preview for a caller who may view some applications; nil if that is none
// of it. A reason can name an application, so only those who may view all of them read it.
func pullPreview(view deploy.Scope, p deploy.PullPreview) *controlv1.Preview {
	m := &controlv1.Preview{
		RepositoryId: text(p.RepoID), PullRequest: int32(p.Number), HeadBranch: text(p.Branch), HeadCommit: text(p.Head), BaseBranch: text(p.Base),
		Phase: previewPhases[p.Phase], SinceMs: millis(p.Since), CreatedAtMs: millis(p.CreatedAt), ReadyAtMs: millis(p.ReadyAt), ExpiresAtMs: millis(p.ExpiresAt),
		ExtendedUntilMs: millis(p.ExtendedUntil),
	}
	hidden := false
	for _, a := range p.Applications {
		if !view.Contains(a.Application()) {
			hidden = true
			continue
		}
		one := &controlv1.PreviewOfApplication{
			ApplicationId: text(a.ID), ApplicationName: text(a.Name), Directory: text(a.Git.Dir), Phase: previewPhases[a.Phase], Reason: text(a.Reason), DeploymentId: text(a.DeploymentID),
		}
		if p.Phase == deploy.PreviewReady {
			one.Header, one.Hostnames = text(a.Header), textList(a.Hostnames)
			if a.Host != "" {
				one.Url = "https://" + text(a.Host)
			}
		}
		m.Applications = append(m.Applications, one)
	}
	if len(m.Applications) == 0 && !view.All {
		return nil
	}
	if !hidden {
		m.Reason = text(p.Reason)
	}
	return m
}

// GetPreviewLogs returns the last lines of the pods of a preview, and of what failed.
func (s *controlService) GetPreviewLogs(ctx context.Context, req *controlv1.GetPreviewLogsRequest) (*controlv1.GetPreviewLogsResponse, error) {
	p, err := s.pullPreview(ctx, req)
	if err != nil {
		return nil, err
	}
	lines := min(int(cmp.Or(req.TailLines, previewTail)), maxPreviewTail)
	view, logs := viewOf(ctx), scopeOf(ctx, deploy.PermViewLogs)
	resp, found, may := &controlv1.GetPreviewLogsResponse{}, false, false
	for _, a := range p.Applications {
		if app := a.Application(); req.ApplicationId != "" && a.ID != req.ApplicationId || !view.Contains(app) {
			continue
		} else if found = true; !logs.Contains(app) {
			continue
		}
		may = true
		if len(a.Log) > 0 {
			resp.Logs = append(resp.Logs, &controlv1.PreviewLog{
				ApplicationId: text(a.ID), ApplicationName: text(a.Name), Lines: textList(a.Log[max(0, len(a.Log)-lines):]),
			})
		}
		resp.Logs = append(resp.Logs, s.podLines(ctx, a, lines)...)
	}
	switch {
	case !found:
		return nil, deploy.Errorf(deploy.NotFound, "the preview of pull request %s has no application %s", p.Key(), req.ApplicationId)
	case !may:
		return nil, deploy.Errorf(deploy.Denied, "Permission denied: this needs the permission %q in an application of the preview", deploy.PermViewLogs)
	}
	if n := fit(resp.Logs); n < len(resp.Logs) {
		resp.Logs, resp.LogsLeftOut = resp.Logs[:n], int32(len(resp.Logs)-n)
	}
	return resp, nil
}

// podLines returns the logs of the pods of an application. That they cannot be read is a result.
func (s *controlService) podLines(ctx context.Context, a deploy.PullPreviewApplication, lines int) (out []*controlv1.PreviewLog) {
	app, err := s.store.Application(ctx, a.ID)
	if deploy.IsKind(err, deploy.NotFound) || err == nil && app.Deleted || s.pods == nil {
		return nil
	}
	var found []deploy.PodLines
	if err == nil {
		found, err = s.pods.LastPodLines(ctx, app, lines)
	}
	if err != nil {
		found = []deploy.PodLines{{Error: err.Error()}}
	}
	for _, l := range found {
		out = append(out, &controlv1.PreviewLog{
			ApplicationId: text(a.ID), ApplicationName: text(a.Name), Pod: text(l.Pod), Container: text(l.Container), Previous: l.Previous,
			Lines: textList(l.Lines), Error: text(l.Error),
		})
	}
	return out
}

// DeletePreview stores that a preview is to be removed until the next commit.
func (s *controlService) DeletePreview(ctx context.Context, req *controlv1.DeletePreviewRequest) (*controlv1.DeletePreviewResponse, error) {
	if _, err := s.decidable(ctx, req, deploy.PermDelete); err != nil {
		return nil, err
	}
	err := s.store.DismissPullPreview(ctx, req.RepositoryId, int(req.PullRequest), req.HeadCommit, callerOf(ctx).Subject)
	return &controlv1.DeletePreviewResponse{}, err
}

// ExtendPreview stores until when a preview is not removed.
func (s *controlService) ExtendPreview(ctx context.Context, req *controlv1.ExtendPreviewRequest) (*controlv1.ExtendPreviewResponse, error) {
	p, err := s.decidable(ctx, req, deploy.PermSync)
	if err != nil {
		return nil, err
	}
	until, now := timeOf(req.UntilMs), s.now()
	switch {
	case !until.After(now):
		return nil, deploy.Errorf(deploy.Invalid, "until_ms is %s, which has passed: name a later time", until.UTC().Format(time.RFC3339))
	case until.After(now.Add(maxExtension)):
		return nil, deploy.Errorf(deploy.Invalid, "until_ms is more than %d days from now: extend it again before the end", int(maxExtension.Hours()/24))
	case p.Dismissed == p.Head:
		return nil, deploy.Errorf(deploy.Illegal, "%s removed the preview of pull request %s: push a commit to bring it back", p.DismissedBy, p.Key())
	case p.ExpiresAt.IsZero():
		return nil, deploy.Errorf(deploy.Illegal, "the preview of pull request %s has no time after which it is removed (spec.preview.ttl), or is not deployed yet", p.Key())
	}
	err = s.store.ExtendPullPreview(ctx, p.RepoID, p.Number, req.HeadCommit, until)
	return &controlv1.ExtendPreviewResponse{}, err
}

// decidable returns a preview if the caller has a permission in all of its applications.
func (s *controlService) decidable(ctx context.Context, req aboutPreview, permission deploy.Permission) (deploy.PullPreview, error) {
	p, err := s.pullPreview(ctx, req)
	if err != nil {
		return p, err
	}
	view, scope := viewOf(ctx), scopeOf(ctx, permission)
	missing := func(a deploy.PullPreviewApplication) bool {
		return !scope.Contains(a.Application()) || !view.Contains(a.Application())
	}
	if slices.ContainsFunc(p.Applications, missing) || len(p.Applications) == 0 && !scope.All {
		return p, deploy.Errorf(deploy.Denied, "Permission denied: this needs the permission %q in all applications of the preview", permission)
	}
	return p, nil
}

// validPreview validates a request about the preview of a pull request.
func validPreview(req any) error {
	switch r := req.(type) {
	case *controlv1.ListPreviewsRequest:
		return first(
			notNegative("ListPreviewsRequest.PullRequest", r.PullRequest),
			bounded("ListPreviewsRequest.Phases", "items", len(r.Phases)))
	case *controlv1.GetPreviewRequest:
		return validPullRequest("GetPreviewRequest", r)
	case *controlv1.GetPreviewLogsRequest:
		return first(validPullRequest("GetPreviewLogsRequest", r), notNegative("GetPreviewLogsRequest.TailLines", r.TailLines))
	case *controlv1.DeletePreviewRequest:
		return first(validPullRequest("DeletePreviewRequest", r), required("DeletePreviewRequest.HeadCommit", r.HeadCommit))
	case *controlv1.ExtendPreviewRequest:
		err := first(validPullRequest("ExtendPreviewRequest", r), required("ExtendPreviewRequest.HeadCommit", r.HeadCommit))
		if err == nil && r.UntilMs <= 0 {
			err = broken("ExtendPreviewRequest.UntilMs", fmt.Sprintf("value must be greater than 0, found %d", r.UntilMs))
		}
		return err
	}
	return nil
}

func validPullRequest(message string, r aboutPreview) error {
	if r.GetPullRequest() <= 0 {
		return first(required(message+".RepositoryId", r.GetRepositoryId()), broken(message+".PullRequest", "value must be greater than 0"))
	}
	return required(message+".RepositoryId", r.GetRepositoryId())
}
