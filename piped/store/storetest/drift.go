package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testDrift: the result of a drift evaluation is stored completely or not at all, and only if
// it is not outdated.
func testDrift(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "a")
	begun := e.clock.now()
	out := deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "1 difference: 1 missing", At: begun}
	report := deploy.DriftReport{
		ID: "r1", ApplicationID: a.ID, Cluster: "c", Commit: "c0ffee", Status: deploy.OutOfSync, Compared: 3,
		Objects:   []deploy.ObjectDrift{{Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "x"}, Kind: deploy.DriftMissing, Diff: "never stored", BeganAt: begun.UTC().Truncate(time.Millisecond)}},
		CheckedAt: begun, BeganAt: begun,
	}
	if _, err := e.store.DriftReport(ctx, a.ID); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("before any drift: %v, want NotFound", err)
	}
	feed := e.store.Watch(deploy.TopicDrift)
	defer feed.Close()
	event := deploy.Event{Key: "r1/out", Type: deploy.EventOutOfSync, ApplicationID: a.ID, At: begun}
	for i, want := range []bool{true, false} {
		stored := &report
		if i > 0 {
			stored = nil
		}
		if changed, err := e.store.ReportDrift(ctx, a, out, stored, event); err != nil || changed != want {
			t.Errorf("report %d: changed %t, %v, want %t", i, changed, err, want)
		}
	}
	if got := feed.Take(); len(got) != 1 || got[0].ApplicationID != a.ID {
		t.Errorf("the feed reported %v", got)
	}
	want := report
	want.CheckedAt, want.BeganAt = begun.UTC().Truncate(time.Millisecond), begun.UTC().Truncate(time.Millisecond)
	want.Objects = []deploy.ObjectDrift{report.Objects[0]}
	want.Objects[0].Diff = ""
	got, err := e.store.DriftReport(ctx, a.ID)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("stored (-want +got), %v:\n%s", err, diff)
	}
	e.wantEvents(t, "r1/out")

	report.EndedAt, report.End = e.clock.now(), deploy.DriftReverted
	synced := deploy.SyncState{Status: deploy.Synced, At: report.EndedAt}
	if _, err := e.store.ReportDrift(ctx, a, synced, &report, deploy.Event{Key: "r1/in", Type: deploy.EventSynced, ApplicationID: a.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.store.DriftReport(ctx, a.ID); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("after its end: %v, want NotFound", err)
	}
	if app, err := e.store.Application(ctx, a.ID); err != nil || !app.Sync.SameAs(synced) {
		t.Errorf("after its end the state is %v, %v", app.Sync, err)
	}
	e.wantEvents(t, "r1/out", "r1/in")

	// At most one period is current.
	report.ID, report.EndedAt, report.End, report.BeganAt = "r2", time.Time{}, "", e.clock.now()
	if _, err := e.store.ReportDrift(ctx, a, out, &report); err != nil {
		t.Fatal(err)
	}
	other := report
	other.ID = "r3"
	if _, err := e.store.ReportDrift(ctx, a, synced, &other); err == nil {
		t.Error("there are two periods at once")
	}
	if app, err := e.store.Application(ctx, a.ID); err != nil || app.Sync.Status != deploy.OutOfSync {
		t.Errorf("with the report its state was stored: %v, %v", app.Sync, err)
	}

	// An invalid configuration keeps its sync state.
	if _, err := e.store.SetSyncState(ctx, a.ID, deploy.SyncState{Status: deploy.SyncInvalidConfig}); err != nil {
		t.Fatal(err)
	}
	if changed, err := e.store.ReportDrift(ctx, a, synced, nil); err != nil || changed {
		t.Errorf("of an invalid configuration: changed %t, %v", changed, err)
	}
}

// testDriftCounts: an evaluation from before a deployment is rejected.
func testDriftCounts(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "a")
	state := deploy.SyncState{Status: deploy.OutOfSync}
	refused := func(what string, evaluated deploy.Application) {
		t.Helper()
		if _, err := e.store.ReportDrift(ctx, evaluated, state, nil); !deploy.IsKind(err, deploy.Conflict) {
			t.Errorf("%s: %v, want Conflict", what, err)
		}
	}
	e.create(t, "d1", a)
	e.run(t, "d1")
	refused("while one runs", a)
	abandoned := deploy.DriftReport{ID: "r", ApplicationID: a.ID, BeganAt: e.clock.now(), EndedAt: e.clock.now(), End: deploy.DriftAbandoned}
	if _, err := e.store.ReportDrift(ctx, a, state, &abandoned); err != nil {
		t.Errorf("what is abandoned while one runs: %v", err)
	}
	e.succeed(t, "d1")
	refused("it succeeded meanwhile", a)
	now, err := e.store.Application(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := e.store.ReportDrift(ctx, now, deploy.SyncState{Status: deploy.Synced}, nil); err != nil || !changed {
		t.Errorf("evaluated after it: %t, %v", changed, err)
	}
	if _, err := e.store.ReportDrift(ctx, app("nobody"), state, nil); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("of an unknown application: %v, want NotFound", err)
	}
}

// testListDrift: periods are listed by start time, and old ones are deleted.
func testListDrift(t *testing.T, e *env) {
	ctx := t.Context()
	a, b := e.putApp(t, "a"), e.putApp(t, "b")
	at := func(n int) time.Time { return epoch.UTC().Truncate(time.Second).Add(time.Duration(n) * time.Minute) }
	put := func(app deploy.Application, id string, began int, ends bool) {
		t.Helper()
		r := deploy.DriftReport{ID: id, ApplicationID: app.ID, BeganAt: at(began)}
		if ends {
			r.EndedAt, r.End = at(began+1), deploy.DriftReverted
		}
		if _, err := e.store.ReportDrift(ctx, app, deploy.SyncState{Status: deploy.OutOfSync}, &r); err != nil {
			t.Fatal(err)
		}
	}
	put(a, "1", 1, true)
	put(a, "2", 2, true)
	put(a, "3", 4, false)
	put(b, "4", 2, true)
	put(b, "5", 3, false)
	list := func(q store.DriftQuery) string {
		t.Helper()
		var pages []string
		for more := true; more; more = q.Cursor != "" {
			found, cursor, err := e.store.ListDriftReports(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, r := range found {
				ids = append(ids, r.ID)
			}
			pages, q.Cursor = append(pages, strings.Join(ids, " ")), cursor
		}
		return strings.Join(pages, "|")
	}
	for name, c := range map[string]struct {
		q    store.DriftQuery
		want string
	}{
		"all":               {store.DriftQuery{}, "3 5 2 4 1"},
		"page by page":      {store.DriftQuery{Limit: 2}, "3 5|2 4|1"},
		"of an application": {store.DriftQuery{ApplicationIDs: []string{b.ID}}, "5 4"},
		"by labels":         {store.DriftQuery{Labels: map[string]string{"name": "a"}}, "3 2 1"},
		"those that last":   {store.DriftQuery{OpenOnly: true}, "3 5"},
		"from, to":          {store.DriftQuery{From: at(2).Add(time.Second), To: at(4)}, "5 2 4"},
	} {
		if got := list(c.q); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, _, err := e.store.ListDriftReports(ctx, store.DriftQuery{Cursor: "nonsense"}); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("with a cursor of an unknown application: %v, want Invalid", err)
	}
	c := e.putApp(t, "c")
	for i := range 203 {
		put(c, fmt.Sprintf("c%03d", i), i, true)
	}
	kept := strings.Fields(list(store.DriftQuery{ApplicationIDs: []string{c.ID}}))
	if len(kept) != 200 || kept[0] != "c202" || kept[199] != "c003" {
		t.Errorf("%d ended periods are kept, from %s to %s; want 200, from c003 to c202", len(kept), kept[len(kept)-1], kept[0])
	}
	if got := list(store.DriftQuery{ApplicationIDs: []string{a.ID}}); got != "3 2 1" {
		t.Errorf("of another application there are %q", got)
	}
}

// wantEvents fails the test unless the outbox contains events with exactly these keys, in this
// order.
func (e *env) wantEvents(t *testing.T, keys ...string) {
	t.Helper()
	events, err := e.store.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range events {
		got = append(got, ev.Key)
	}
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
}
