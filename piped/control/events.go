package control

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// eventPrefix is the prefix of event statuses on the wire.
const eventPrefix = "EVENT_"

// defaultEvents is the default page size of ListEvents.
const defaultEvents = 50

// maxEvent limits the size of an event, so that several fit into one response; its data is
// typically the name of an image.
const maxEvent = 1 << 20

// registeredEvents stores registered events.
type registeredEvents interface {
	// RegisterEvent stores a new open event and announces it.
	RegisterEvent(ctx context.Context, e deploy.RegisteredEvent) (deploy.RegisteredEvent, error)
	// RegisteredEvents returns events, the newest first, and the cursor of the next
	// page, "" at the end.
	RegisteredEvents(ctx context.Context, q store.RegisteredEventQuery) ([]deploy.RegisteredEvent, string, error)
}

// RegisterEvent stores an event for the event watcher. As in PipeCD the commit fields are
// used only if both hash and URL are set.
func (s *apiService) RegisterEvent(ctx context.Context, req *apiservice.RegisterEventRequest) (*apiservice.RegisterEventResponse, error) {
	e := deploy.RegisteredEvent{ID: s.newID(), Name: req.Name, Data: req.Data, Labels: req.Labels, Contexts: req.Contexts}
	if req.CommitHash != "" && req.CommitUrl != "" {
		e.Trigger = deploy.TriggerCommit{
			Hash: req.CommitHash, URL: req.CommitUrl, Title: req.CommitTitle, Message: req.CommitMessage, Author: req.CommitAuthor,
			At: fromSeconds(req.CommitTimestamp),
		}
	}
	e, err := s.store.RegisterEvent(ctx, e)
	if err != nil {
		return nil, err
	}
	return &apiservice.RegisterEventResponse{EventId: e.ID}, nil
}

// contextKey is PipeCD's pattern for keys of contexts. Git accepts such keys in trailers.
var contextKey = regexp.MustCompile(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)

// validateRegisterEvent validates the fields that the event watcher uses. The rules and
// messages are PipeCD's, except for the size limit.
func validateRegisterEvent(r *apiservice.RegisterEventRequest) error {
	if size := proto.Size(r); size > maxEvent {
		return status.Errorf(codes.InvalidArgument, "invalid request: invalid RegisterEventRequest: the event has %d bytes, and may have %d: register where the data is instead", size, maxEvent)
	}
	if err := first(required("RegisterEventRequest.Name", r.Name), required("RegisterEventRequest.Data", r.Data)); err != nil {
		return err
	}
	if err := pairs("RegisterEventRequest.Labels", r.Labels); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(r.Contexts)) {
		if key != "" && !contextKey.MatchString(key) {
			return status.Errorf(codes.InvalidArgument, "invalid request: invalid RegisterEventRequest.Contexts[%s]: value does not match regex pattern %q", key, contextKey)
		}
	}
	if at := r.CommitTimestamp; at < minSeconds || at > maxSeconds {
		return status.Errorf(codes.InvalidArgument, "invalid request: invalid RegisterEventRequest.CommitTimestamp: value must be inside range [%d, %d]", minSeconds, maxSeconds)
	}
	return pairs("RegisterEventRequest.Contexts", r.Contexts)
}

// Range of storable times in Unix seconds: the years 1 to 9999.
const (
	minSeconds int64 = -62135596800
	maxSeconds int64 = 253402300799
)

// pairs returns an error for empty keys or values and for too many pairs.
func pairs(field string, m map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := fmt.Sprintf("%s[%s]", field, key)
		if err := first(required(at, key), required(at, m[key])); err != nil {
			return err
		}
	}
	return bounded(field, "pairs", len(m))
}

// ListEvents lists registered events, the newest first.
func (s *controlService) ListEvents(ctx context.Context, req *controlv1.ListEventsRequest) (*controlv1.ListEventsResponse, error) {
	statuses, err := eventStatuses(req.Statuses)
	if err != nil {
		return nil, err
	}
	limit := req.Limit
	if limit == 0 {
		limit = defaultEvents
	}
	events, cursor, err := page(limit, func(limit int) ([]deploy.RegisteredEvent, string, error) {
		return s.store.RegisteredEvents(ctx, store.RegisteredEventQuery{
			Name: req.Name, Labels: req.Labels, Statuses: statuses, Limit: limit, Cursor: req.Cursor,
		})
	}, s.convert.registeredEvent)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListEventsResponse{Events: events, Cursor: cursor}, nil
}

func eventStatuses(list []modelv1.EventStatus) ([]deploy.EventStatus, error) {
	var out []deploy.EventStatus
	for _, s := range list {
		if int(s) < 0 || int(s) >= len(deploy.EventStatuses()) {
			return nil, deploy.Errorf(deploy.Invalid, "there is no event status %d: use one that event.proto names", s)
		}
		out = append(out, deploy.EventStatuses()[s])
	}
	return out, nil
}

func (c converter) registeredEvent(e deploy.RegisteredEvent) *modelv1.Event {
	m := &modelv1.Event{
		Id: text(e.ID), Name: text(e.Name), Data: text(e.Data), ProjectId: c.projectID, Labels: texts(e.Labels),
		EventKey: text(e.Key), Status: modelv1.EventStatus(modelv1.EventStatus_value[eventPrefix+string(e.Status)]),
		StatusDescription: text(e.StatusDescription), Contexts: texts(e.Contexts), TriggerCommitHash: text(e.Trigger.Hash),
		HandledAt: seconds(e.HandledAt), CreatedAt: seconds(e.CreatedAt), UpdatedAt: seconds(e.UpdatedAt),
	}
	for _, h := range e.Handlings {
		if m.PushedCommit == "" {
			m.PushedCommit = text(h.Commit)
		}
		if m.PullRequestUrl == "" {
			m.PullRequestUrl = text(h.PullRequestURL)
		}
	}
	return m
}
