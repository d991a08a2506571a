package storetest

import (
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func testApplications(t *testing.T, e *env) {
	ctx, a := t.Context(), app("web")
	put := func(want bool) {
		t.Helper()
		if changed, err := e.store.PutApplication(ctx, a); err != nil || changed != want {
			t.Fatalf("put: changed %v, error %v, want changed %v", changed, err, want)
		}
	}
	put(true)
	put(false)
	if err := e.store.SetDisabled(ctx, a.ID, true); err != nil {
		t.Fatal(err)
	}
	if err := e.store.DeleteApplication(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	put(false)
	a.Description, a.Provider, a.Labels = "the shop", "other", map[string]string{"team": "shop"}
	put(true)
	got, err := e.store.Application(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := a
	want.Disabled, want.Deleted, want.Sync.Status = true, true, deploy.SyncUnknown
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(deploy.Application{}, "CreatedAt", "UpdatedAt", "DeletedAt")); diff != "" {
		t.Errorf("stored application (-want +got):\n%s", diff)
	}
	if got.DeletedAt.IsZero() || !got.UpdatedAt.After(got.CreatedAt) {
		t.Errorf("times: deleted %v, created %v, updated %v", got.DeletedAt, got.CreatedAt, got.UpdatedAt)
	}
	if list, _, err := e.store.ListApplications(ctx, store.ApplicationQuery{IncludeAll: true, Labels: map[string]string{"team": "core"}}); err != nil || len(list) != 0 {
		t.Errorf("an old label still selects: %v, %v", list, err)
	}
	_, err = e.store.Application(ctx, "nobody")
	wantKind(t, err, deploy.NotFound, "no application nobody")
	wantKind(t, e.store.SetDisabled(ctx, "nobody", true), deploy.NotFound, "nobody")
	_, err = e.store.SetSyncState(ctx, "nobody", deploy.SyncState{})
	wantKind(t, err, deploy.NotFound, "nobody")
	_, err = e.store.PutApplication(ctx, deploy.Application{ID: "x"})
	wantKind(t, err, deploy.Invalid, "needs an ID and a name")
}

func testApplicationPages(t *testing.T, e *env) {
	ctx := t.Context()
	e.clock.stand.Store(true) // equal times: the ID decides
	var want []string
	for i := range 7 {
		a := app(numbered("page", i))
		if i == 3 {
			a.Git.RepoID = "elsewhere"
		}
		if _, err := e.store.PutApplication(ctx, a); err != nil {
			t.Fatal(err)
		}
		want = append(want, a.ID)
	}
	e.clock.stand.Store(false)
	e.clock.now()
	if err := e.store.SetDisabled(ctx, want[5], true); err != nil { // the last updated one comes first
		t.Fatal(err)
	}
	want = []string{want[5], want[0], want[1], want[2], want[3], want[4], want[6]}
	if diff := cmp.Diff(want, e.applicationPages(t, store.ApplicationQuery{IncludeAll: true, Limit: 3})); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if err := e.store.DeleteApplication(ctx, want[6]); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		query store.ApplicationQuery
		want  []string
	}{
		"enabled":         {store.ApplicationQuery{}, want[1:6]},
		"disabled":        {store.ApplicationQuery{Disabled: true}, want[:1]},
		"all":             {store.ApplicationQuery{IncludeAll: true}, want[:6]},
		"deleted too":     {store.ApplicationQuery{IncludeAll: true, IncludeDeleted: true}, append([]string{want[6]}, want[:6]...)},
		"name":            {store.ApplicationQuery{Name: "page-001"}, want[2:3]},
		"repository":      {store.ApplicationQuery{RepoID: "elsewhere"}, want[4:5]},
		"all labels":      {store.ApplicationQuery{Labels: map[string]string{"team": "core", "name": "page-002"}}, want[3:4]},
		"one label wrong": {store.ApplicationQuery{Labels: map[string]string{"team": "core", "name": "nobody"}}, nil},
		"kind":            {store.ApplicationQuery{Kind: "TERRAFORM"}, nil},
	} {
		if diff := cmp.Diff(c.want, e.applicationPages(t, c.query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, _, err := e.store.ListApplications(ctx, store.ApplicationQuery{Cursor: "not a cursor"})
	wantKind(t, err, deploy.Invalid, "cursor")
}

// applicationPages reads all pages and returns the IDs.
func (e *env) applicationPages(t *testing.T, q store.ApplicationQuery) []string {
	t.Helper()
	var out []string
	for {
		page, cursor, err := e.store.ListApplications(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if (cursor == "") != (len(page) == 0) {
			t.Fatalf("%d applications with the cursor %q", len(page), cursor)
		}
		for _, a := range page {
			if slices.Contains(out, a.ID) {
				t.Fatalf("%s is on two pages", a.ID)
			}
			out = append(out, a.ID)
		}
		if cursor == "" {
			return out
		}
		q.Cursor = cursor
	}
}

func testApplicationState(t *testing.T, e *env) {
	ctx := t.Context()
	a, b := e.putApp(t, "a"), e.putApp(t, "b")
	state := deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "2 objects differ", Reason: "web, db", HeadDeploymentID: "d", At: e.clock.now()}
	set := func(want bool) {
		t.Helper()
		if changed, err := e.store.SetSyncState(ctx, a.ID, state); err != nil || changed != want {
			t.Fatalf("set the sync state: changed %v, error %v, want changed %v", changed, err, want)
		}
	}
	set(true)
	first := state.At
	state.At = e.clock.now() // only the time differs: not written
	set(false)
	must(t, e.store.SetEvaluatedCommit(ctx, "c1", map[string]string{a.ID: "", b.ID: "", "nobody": ""}))
	must(t, e.store.SetEvaluatedCommit(ctx, "c2", map[string]string{a.ID: "", b.ID: "c0"})) // outdated bases
	for _, id := range []string{a.ID, b.ID} {
		got, err := e.store.Application(ctx, id)
		if err != nil || got.EvaluatedCommit != "c1" {
			t.Errorf("evaluated commit of %s: %q, %v", id, got.EvaluatedCommit, err)
		}
		if id == a.ID && (!got.Sync.SameAs(state) || !got.Sync.At.Equal(first.Truncate(1e6))) {
			t.Errorf("sync state: %+v", got.Sync)
		}
	}
}
