package control

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Live reads the live objects of applications.
type Live interface {
	// LiveState reads the objects of an application from its cluster, optionally with
	// the objects that they created, within ten seconds. Unavailable: the cluster does
	// not answer. The result contains no content of objects.
	LiveState(ctx context.Context, app deploy.Application, children bool) (deploy.LiveState, error)
}

// GetLiveState returns the live objects of an application.
func (s *controlService) GetLiveState(ctx context.Context, req *controlv1.GetLiveStateRequest) (*controlv1.GetLiveStateResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	state, err := s.live.LiveState(ctx, app, req.Children)
	if err != nil {
		return nil, err
	}
	return &controlv1.GetLiveStateResponse{LiveState: fitting(liveState(state))}, nil
}

var healths = map[deploy.Health]modelv1.Health{
	deploy.Healthy:           modelv1.Health_HEALTH_HEALTHY,
	deploy.HealthProgressing: modelv1.Health_HEALTH_PROGRESSING,
	deploy.HealthSuspended:   modelv1.Health_HEALTH_SUSPENDED,
	deploy.HealthMissing:     modelv1.Health_HEALTH_MISSING,
	deploy.HealthDegraded:    modelv1.Health_HEALTH_DEGRADED,
}

func liveState(s deploy.LiveState) *modelv1.LiveState {
	m := &modelv1.LiveState{
		ApplicationId: text(s.ApplicationID), Health: healths[s.Health], ReadAtMs: millis(s.ReadAt), IncompleteReason: text(s.Incomplete),
	}
	for _, o := range s.Objects {
		m.Objects = append(m.Objects, liveObject(o))
	}
	return m
}

func liveObject(o deploy.LiveObject) *modelv1.LiveObject {
	m := &modelv1.LiveObject{
		Object: objectRef(o.Cluster, o.Object), Variant: text(o.Variant), Declared: o.Declared,
		Health: healths[o.Health], HealthReason: text(o.Reason), CreatedAtMs: millis(o.CreatedAt),
		Images: textList(o.Images), Replicas: o.Replicas, AvailableReplicas: o.Available, ChildrenLeftOut: int32(o.LeftOut),
	}
	m.Object.Uid = text(o.UID)
	for _, child := range o.Children {
		m.Children = append(m.Children, liveObject(child))
	}
	return m
}

// fitting truncates a live state to the size of a response: it drops the children, then
// the last objects, and adds a note.
func fitting(m *modelv1.LiveState) *modelv1.LiveState {
	if proto.Size(m) <= maxResponse {
		return m
	}
	for _, o := range m.Objects {
		o.ChildrenLeftOut += int32(len(o.Children))
		o.Children = nil
	}
	addReason(m, "the objects' children exceed the size of a response")
	if n := fit(m.Objects); n < len(m.Objects) {
		addReason(m, fmt.Sprintf("%d objects are omitted: the response would be too large", len(m.Objects)-n))
		m.Objects = m.Objects[:n]
	}
	return m
}

func addReason(m *modelv1.LiveState, reason string) {
	m.IncompleteReason = joined(m.IncompleteReason, reason)
}
