package control

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// entryHub distributes changes of applications.
type entryHub = hub[*entry, *controlv1.WatchApplicationsResponse]

// entrySubscription buffers the changed applications of one call.
type entrySubscription = subscription[*entry, *controlv1.WatchApplicationsResponse]

// newEntryHub returns the hub of WatchApplications; the caller runs it.
func newEntryHub(s Store, all *catalog, convert converter, now func() time.Time) *entryHub {
	topics := catalogTopics()
	return newHub(watched[*entry, *controlv1.WatchApplicationsResponse]{
		store: s, topic: topics[0], hints: topics[1:], applications: true, read: all.byID,
		version: func(e **entry) (string, int64) { return (*e).app.ID, (*e).revision },
		convert: func(e *entry) *controlv1.WatchApplicationsResponse {
			return &controlv1.WatchApplicationsResponse{Application: convert.entry(e, now())}
		},
	})
}

// entryFilter selects the applications of a watch. The hub filters by ID only: an application
// that matches no longer has to be sent as removed.
type entryFilter struct {
	ids    []string
	labels map[string]string
}

func (f *entryFilter) matches(e **entry) bool {
	return len(f.ids) == 0 || slices.Contains(f.ids, (*e).app.ID)
}

func (f *entryFilter) mayMatch(c deploy.Change) bool {
	return c.ApplicationID != "" && (len(f.ids) == 0 || slices.Contains(f.ids, c.ApplicationID))
}

// shows reports whether a caller who may view the scope sees an application.
func (f *entryFilter) shows(e *entry, view deploy.Scope) bool {
	return !e.gone && f.matches(&e) && deploy.Selector{Labels: f.labels}.Matches(e.app) && view.Contains(e.app)
}

// WatchApplications streams the matching applications, unless only changes are wanted, then each
// changed one.
func (s *controlService) WatchApplications(req *controlv1.WatchApplicationsRequest, stream grpc.ServerStreamingServer[controlv1.WatchApplicationsResponse]) error {
	ctx := stream.Context()
	f, view := &entryFilter{nonEmpty(req.ApplicationIds), req.Labels}, viewOf(ctx)
	sub := s.entries.subscribe(f, false)
	defer sub.close()
	all, revision, err := s.catalog.all(ctx)
	if err != nil {
		return err
	}
	known := shownEntries{byID: map[string]int64{}}
	if req.ChangesOnly && view.All && len(f.labels) == 0 { // nothing is hidden: no need to list what is shown
		known.all, all = revision, nil
	}
	for _, e := range all {
		if !f.shows(e, view) {
			continue
		}
		known.byID[e.app.ID] = e.revision
		if req.ChangesOnly {
			continue
		}
		if err := stream.Send(&controlv1.WatchApplicationsResponse{Application: s.convert.entry(e, s.now())}); err != nil {
			return err
		}
	}
	all = nil // free the memory: the call may last for days
	if err := stream.Send(&controlv1.WatchApplicationsResponse{CaughtUp: true}); err != nil {
		return err
	}
	return followEntries(ctx, sub, known, func(e *entry) bool { return f.shows(e, view) }, stream.Send)
}

// shownEntries are the applications that the client of a watch has.
type shownEntries struct {
	byID map[string]int64 // revisions
	all  int64            // unless 0, the client has whatever there was at this revision of the catalog
}

// followEntries sends changed applications, and as removed those that are shown no longer,
// until the call or the subscription ends.
func followEntries(ctx context.Context, sub *entrySubscription, known shownEntries,
	shows func(*entry) bool, send func(*controlv1.WatchApplicationsResponse) error,
) error {
	for {
		if err := sub.wait(ctx); err != nil {
			return err
		}
		changed, err := sub.take()
		if err != nil {
			return err
		}
		for _, v := range changed {
			was, shown := known.byID[v.id]
			switch {
			case v.revision <= max(was, known.all):
			case shows(*v.state):
				known.byID[v.id] = v.revision
				err = send(v.message())
			case shown || known.all > 0: // perhaps one that came and went unseen
				delete(known.byID, v.id)
				err = send(&controlv1.WatchApplicationsResponse{RemovedId: text(v.id)})
			}
			if err != nil {
				return err
			}
		}
	}
}

// watchApplication returns an application and a subscription to its changes. The caller must
// close it. The catalog is filled first, because only then it reports a deletion.
func (s *controlService) watchApplication(ctx context.Context, id string) (deploy.Application, *entrySubscription, error) {
	sub := s.entries.subscribe(&entryFilter{ids: []string{id}}, false)
	_, _, err := s.catalog.all(ctx)
	var app deploy.Application
	if err == nil {
		app, err = s.registered(ctx, id)
	}
	if err != nil {
		sub.close()
		return app, nil, err
	}
	return app, sub, nil
}
