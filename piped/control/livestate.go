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
	// LiveState reads the objects of an application from its cluster, with the chosen ones
	// that they created, within ten seconds. Unavailable: the cluster does
	// not answer. The result contains no content of objects.
	LiveState(ctx context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error)
}

// GetLiveState returns the live objects of an application. Calls for a folded tree share their
// reads, also with summaries, because every open view of the page makes them.
func (s *controlService) GetLiveState(ctx context.Context, req *controlv1.GetLiveStateRequest) (*controlv1.GetLiveStateResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	if req.LevelLimit > 0 {
		state, err := s.sharedLiveState(ctx, app, deploy.AllChildren, acceptedAge(req))
		if err != nil {
			return nil, err
		}
		return &controlv1.GetLiveStateResponse{LiveState: fitting(folded(state, req))}, nil
	}
	state, err := s.live.LiveState(ctx, app, relevant(req.Children))
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

// relevant returns the created objects to read for a response without folding.
func relevant(children bool) deploy.LiveChildren {
	if children {
		return deploy.RelevantChildren
	}
	return deploy.NoChildren
}

func liveState(s deploy.LiveState) *modelv1.LiveState {
	m := liveHead(s)
	for _, o := range s.Objects {
		m.Objects = append(m.Objects, liveObject(o))
	}
	return m
}

// liveHead returns a state without its objects.
func liveHead(s deploy.LiveState) *modelv1.LiveState {
	return &modelv1.LiveState{
		ApplicationId: text(s.ApplicationID), Health: healths[s.Health], ReadAtMs: millis(s.ReadAt), IncompleteReason: text(s.Incomplete),
	}
}

func liveObject(o deploy.LiveObject) *modelv1.LiveObject {
	m := liveLine(o)
	for _, child := range o.Children {
		m.Children = append(m.Children, liveObject(child))
	}
	return m
}

// liveLine returns an object without its children.
func liveLine(o deploy.LiveObject) *modelv1.LiveObject {
	m := &modelv1.LiveObject{
		Object: objectRef(o.Cluster, o.Object), Variant: text(o.Variant), Declared: o.Declared,
		Health: healths[o.Health], HealthReason: text(o.Reason), CreatedAtMs: millis(o.CreatedAt),
		Images: textList(o.Images), Replicas: o.Replicas, AvailableReplicas: o.Available, ChildrenLeftOut: int32(o.LeftOut),
		Deleting: o.Deleting,
	}
	m.Object.Uid = text(o.UID)
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
		o.Children, o.Folded = nil, nil
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
