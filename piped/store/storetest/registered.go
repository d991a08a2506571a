package storetest

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

func (e *env) register(t *testing.T, id, name string, labels map[string]string) deploy.RegisteredEvent {
	t.Helper()
	r, err := e.store.RegisterEvent(t.Context(), deploy.RegisteredEvent{
		ID: id, Name: name, Data: "v-" + id, Labels: labels, Contexts: map[string]string{"build": id},
		Trigger: deploy.TriggerCommit{Hash: "c0ffee", URL: "https://example.com/c0ffee", At: time.Unix(7, 0).UTC()}, Status: deploy.EventFailure,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventIDs returns the IDs of the events that q selects, and the cursor.
func (e *env) eventIDs(t *testing.T, q store.RegisteredEventQuery) (ids []string, cursor string) {
	t.Helper()
	events, cursor, err := e.store.RegisteredEvents(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range events {
		ids = append(ids, r.ID)
	}
	return ids, cursor
}

func testRegisteredEvents(t *testing.T, e *env) {
	ctx := t.Context()
	feed := e.store.Watch(deploy.TopicRegistered)
	defer feed.Close()
	prod := map[string]string{"app": "web", "env": "prod"}
	one := e.register(t, "e1", "image", prod)
	if got := feed.Take(); len(got) != 1 || got[0].ID != "e1" {
		t.Errorf("feed: %+v", got)
	}
	if one.Status != deploy.EventOpen || one.Key != deploy.EventKey("image", prod) || one.CreatedAt.IsZero() {
		t.Errorf("registered: %+v", one)
	}
	_, err := e.store.RegisterEvent(ctx, deploy.RegisteredEvent{ID: "e1", Name: "other"})
	wantKind(t, err, deploy.Exists, "e1")
	_, err = e.store.RegisterEvent(ctx, deploy.RegisteredEvent{ID: "e9"})
	wantKind(t, err, deploy.Invalid, "name")
	got, err := e.store.RegisteredEvent(ctx, "e1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, got); diff != "" {
		t.Errorf("event (-returned +read):\n%s", diff)
	}
	e.register(t, "e2", "image", map[string]string{"app": "web"})
	three := e.register(t, "e3", "image", prod)
	if !three.CreatedAt.After(one.CreatedAt) {
		t.Errorf("e3 came at %s, e1 at %s", three.CreatedAt, one.CreatedAt)
	}
	if got, err = e.store.RegisteredEvent(ctx, "e1"); err != nil || got.Newer != "e3" {
		t.Errorf("newer than e1: %q, %v", got.Newer, err)
	}
	for name, c := range map[string]struct {
		q    store.RegisteredEventQuery
		want []string
	}{
		"all":       {store.RegisteredEventQuery{}, []string{"e3", "e2", "e1"}},
		"by name":   {store.RegisteredEventQuery{Name: "chart"}, nil},
		"by labels": {store.RegisteredEventQuery{Name: "image", Labels: map[string]string{"env": "prod"}}, []string{"e3", "e1"}},
		"by status": {store.RegisteredEventQuery{Statuses: []deploy.EventStatus{deploy.EventHandled}}, nil},
		"limited":   {store.RegisteredEventQuery{Limit: 2}, []string{"e3", "e2"}},
	} {
		ids, _ := e.eventIDs(t, c.q)
		if diff := cmp.Diff(c.want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, cursor := e.eventIDs(t, store.RegisteredEventQuery{Limit: 2})
	rest, _ := e.eventIDs(t, store.RegisteredEventQuery{Limit: 2, Cursor: cursor})
	if diff := cmp.Diff([]string{"e1"}, rest); diff != "" {
		t.Errorf("second page (-want +got):\n%s", diff)
	}
	_, _, err = e.store.RegisteredEvents(ctx, store.RegisteredEventQuery{Cursor: "?"})
	wantKind(t, err, deploy.Invalid, "cursor")
	_, err = e.store.RegisteredEvent(ctx, "nobody")
	wantKind(t, err, deploy.NotFound, "nobody")
}

func testRegisteredEventHandlings(t *testing.T, e *env) {
	ctx := t.Context()
	e.register(t, "e1", "image", nil)
	e.register(t, "e2", "image", nil)
	e.register(t, "e3", "image", nil)
	save := func(h deploy.EventHandling) {
		t.Helper()
		if err := e.store.SaveEventHandling(ctx, "e1", h); err != nil {
			t.Fatal(err)
		}
	}
	save(deploy.EventHandling{RepoID: "r", Status: deploy.EventOpen, Description: "the remote does not answer"})
	got, err := e.store.RegisteredEvent(ctx, "e1")
	if err != nil || got.StatusDescription != "the remote does not answer" || got.Status != deploy.EventOpen {
		t.Errorf("while it is open: %+v, %v", got, err)
	}
	save(deploy.EventHandling{RepoID: "r", Status: deploy.EventHandled, Description: "done", Commit: "c1"})
	save(deploy.EventHandling{RepoID: "r", Status: deploy.EventFailure, Description: "too late"})
	save(deploy.EventHandling{RepoID: "r", PullRequest: true, Status: deploy.EventHandled, PullRequestURL: "https://example.com/1"})
	if got, err = e.store.RegisteredEvent(ctx, "e1"); err != nil {
		t.Fatal(err)
	}
	if h := got.Handling("r", false); len(got.Handlings) != 2 || h.Status != deploy.EventHandled || h.Commit != "c1" || h.At.IsZero() {
		t.Errorf("handlings: %+v", got.Handlings)
	}
	if h := got.Handling("other", true); h.Status != deploy.EventOpen {
		t.Errorf("of another repository: %+v", h)
	}
	wantKind(t, e.store.SaveEventHandling(ctx, "nobody", deploy.EventHandling{}), deploy.NotFound, "nobody")

	wantKind(t, e.store.FinishEvent(ctx, "e1", deploy.EventOpen, ""), deploy.Illegal, "e1")
	wantKind(t, e.store.FinishEvent(ctx, "nobody", deploy.EventFailure, ""), deploy.NotFound, "nobody")
	if err := e.store.FinishEvent(ctx, "e1", deploy.EventHandled, "committed"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, e.store.FinishEvent(ctx, "e1", deploy.EventOutdated, ""), deploy.Conflict, "it is SUCCESS")
	if got, err = e.store.RegisteredEvent(ctx, "e1"); err != nil || got.Status != deploy.EventHandled || got.StatusDescription != "committed" || got.HandledAt.IsZero() {
		t.Errorf("finished: %+v, %v", got, err)
	}
	open, err := e.store.OpenEvents(ctx)
	if err != nil || len(open) != 2 || open[0].ID != "e2" || open[0].Newer != "e3" || open[1].Newer != "" {
		t.Errorf("open: %+v, %v", open, err)
	}
}

// testConcurrentEvents registers events of one key concurrently: all are stored, with distinct
// times.
func testConcurrentEvents(t *testing.T, e *env) {
	e.clock.stand.Store(true)
	const n = 12
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			_, err := e.store.RegisterEvent(t.Context(), deploy.RegisteredEvent{ID: numbered("e", i), Name: "image"})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	events, err := e.store.OpenEvents(t.Context())
	if err != nil || len(events) != n {
		t.Fatalf("%d events of %d are open, %v", len(events), n, err)
	}
	for i, r := range events[1:] {
		if !r.CreatedAt.After(events[i].CreatedAt) || events[i].Newer != events[n-1].ID {
			t.Errorf("%s is followed at once by %s; newest is %s", events[i].ID, r.ID, events[i].Newer)
		}
	}
}
