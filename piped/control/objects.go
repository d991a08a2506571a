package control

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Objects reads single live objects of applications. An object that belongs to no application
// does not exist for it. Results contain no decrypted secrets and no values of Secrets. Errors
// are of kind NotFound for an object that does not exist, Invalid for a selector that selects
// several, and Unavailable if the cluster does not answer.
type Objects interface {
	// LiveObject reads one object within ten seconds.
	LiveObject(ctx context.Context, app deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error)
	// ObjectEvents lists the Kubernetes events of objects within ten seconds.
	ObjectEvents(ctx context.Context, app deploy.Application, q deploy.EventQuery) (deploy.ObjectEvents, error)
	// PodLog reads the log of a container and calls send with parts of it, the first of
	// which names the container. It returns nil at the end of the log, or the error of send.
	// Illegal: the container has no such log.
	PodLog(ctx context.Context, app deploy.Application, q deploy.PodLogQuery, send func(deploy.PodLog) error) error
	// OnLiveChange has changed called after objects of an application have changed, until
	// stop is called. Some changes of pods cause no call.
	OnLiveChange(app deploy.Application, changed func()) (stop func())
}

// Limits of ListObjectEvents.
const (
	eventsPage    = 100
	maxEventsPage = 500
)

// GetLiveObject returns one live object, and the same object as Git declares it.
func (s *controlService) GetLiveObject(ctx context.Context, req *controlv1.GetLiveObjectRequest) (*controlv1.GetLiveObjectResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	detail, err := s.objects.LiveObject(ctx, app, deploy.ObjectQuery{
		ObjectSelector: objectSelector(req.Object), Diff: req.Diff, ManagedFields: req.ManagedFields,
	})
	if err != nil {
		return nil, err
	}
	return fittingObject(liveObjectResponse(app.ID, detail)), nil
}

func objectSelector(m *controlv1.ObjectSelector) deploy.ObjectSelector {
	return deploy.ObjectSelector{Cluster: m.GetCluster(), Group: m.Group, Kind: m.GetKind(), Namespace: m.Namespace, Name: m.GetName()}
}

func liveObjectResponse(applicationID string, d deploy.ObjectDetail) *controlv1.GetLiveObjectResponse {
	m := &controlv1.GetLiveObjectResponse{
		ApplicationId: text(applicationID), Object: liveObject(d.Object), LiveYaml: text(d.Live), GitYaml: text(d.Git), GitCommit: text(d.GitCommit),
		Compared: d.Compared, Note: text(d.Note),
	}
	if d.Drift != nil {
		m.Drift = objectDrift(cmp.Or(d.Drift.Cluster, d.Object.Cluster), *d.Drift)
	}
	for _, f := range d.Managers {
		m.Managers = append(m.Managers, &controlv1.FieldManager{
			Manager: text(f.Manager), Operation: text(f.Operation), Subresource: text(f.Subresource), ChangedAtMs: millis(f.ChangedAt),
			Fields: textList(f.Fields), FieldsLeftOut: int32(f.LeftOut),
		})
	}
	return m
}

// fittingObject reduces a response to its maximal size: it omits the diff, the managers and the
// differing fields, then the declaration, and notes that.
func fittingObject(m *controlv1.GetLiveObjectResponse) *controlv1.GetLiveObjectResponse {
	for _, part := range []struct {
		what string
		omit func()
	}{
		{"the diff", func() {
			if m.Drift != nil {
				m.Drift.Diff = ""
			}
		}},
		{"the managers of fields", func() { m.Managers = nil }},
		{"the differing fields", func() {
			if m.Drift != nil {
				m.Drift.Fields = nil
			}
		}},
		{"the declaration in Git", func() { m.GitYaml = "" }},
		{"the live object", func() { m.LiveYaml = "" }},
	} {
		size := proto.Size(m)
		if size <= maxResponse {
			break
		}
		if part.omit(); proto.Size(m) < size {
			m.Note = joined(m.Note, fmt.Sprintf("%s: omitted, because the response would be too large", part.what))
		}
	}
	return m
}

// ListObjectEvents lists the Kubernetes events of an object or of all objects of an application.
func (s *controlService) ListObjectEvents(ctx context.Context, req *controlv1.ListObjectEventsRequest) (*controlv1.ListObjectEventsResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	q := deploy.EventQuery{Limit: min(int(cmp.Or(req.Limit, eventsPage)), maxEventsPage)}
	if req.Object != nil {
		selector := objectSelector(req.Object)
		q.Object = &selector
	}
	found, err := s.objects.ObjectEvents(ctx, app, q)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.ListObjectEventsResponse{ApplicationId: text(app.ID), IncompleteReason: text(found.Incomplete)}
	for _, e := range found.Events {
		resp.Events = append(resp.Events, objectEvent(e))
	}
	n := fit(resp.Events)
	resp.LeftOut = int32(found.LeftOut + len(resp.Events) - n)
	resp.Events = resp.Events[:n]
	return resp, nil
}

func objectEvent(e deploy.ObjectEvent) *controlv1.ObjectEvent {
	m := &controlv1.ObjectEvent{
		Object: objectRef(e.Cluster, e.Object), Type: text(e.Type), Reason: text(e.Reason), Message: text(e.Message), Count: e.Count,
		FirstAtMs: millis(e.FirstAt), LastAtMs: millis(e.LastAt), Source: text(e.Source),
	}
	m.Object.Uid = text(e.UID)
	return m
}

// maxTail limits the last lines of a log.
const maxTail = 100_000

// validateObjects validates requests about live objects.
func validateObjects(req any) error {
	switch r := req.(type) {
	case *controlv1.WatchLiveStateRequest:
		return required("WatchLiveStateRequest.ApplicationId", r.ApplicationId)
	case *controlv1.GetLiveObjectRequest:
		return first(
			required("GetLiveObjectRequest.ApplicationId", r.ApplicationId),
			validSelector("GetLiveObjectRequest.Object", r.Object))
	case *controlv1.ListObjectEventsRequest:
		errs := []error{
			required("ListObjectEventsRequest.ApplicationId", r.ApplicationId),
			notNegative("ListObjectEventsRequest.Limit", r.Limit),
		}
		if r.Object != nil {
			errs = append(errs, validSelector("ListObjectEventsRequest.Object", r.Object))
		}
		return first(errs...)
	case *controlv1.FollowPodLogsRequest:
		return validFollowPodLogs(r)
	}
	return nil
}

func validSelector(field string, s *controlv1.ObjectSelector) error {
	if s == nil {
		return broken(field, "value is required")
	}
	return first(required("ObjectSelector.Kind", s.Kind), required("ObjectSelector.Name", s.Name))
}

func validFollowPodLogs(r *controlv1.FollowPodLogsRequest) error {
	errs := []error{
		required("FollowPodLogsRequest.ApplicationId", r.ApplicationId),
		required("FollowPodLogsRequest.Pod", r.Pod),
		notNegative("FollowPodLogsRequest.SinceMs", r.SinceMs),
		notNegative("FollowPodLogsRequest.TailLines", r.TailLines),
	}
	if r.TailLines > maxTail {
		errs = append(errs, broken("FollowPodLogsRequest.TailLines", fmt.Sprintf("value must be less than or equal to %d", maxTail)))
	}
	if _, err := logCursor(r.After); err != nil {
		errs = append(errs, err)
	}
	if r.Previous && r.Follow {
		errs = append(errs, deploy.Errorf(deploy.Invalid, "the log of a previous instance is complete: leave out follow"))
	}
	return first(errs...)
}
