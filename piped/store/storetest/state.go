package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testState: State, Waiting and other counts describe the store and its open work.
func testState(t *testing.T, e *env) {
	ctx := t.Context()
	wantWaiting := func(when string, deployments, commands store.Backlog) {
		t.Helper()
		gotDeployments, gotCommands, err := e.store.Waiting(ctx)
		if diff := cmp.Diff([]store.Backlog{deployments, commands}, []store.Backlog{gotDeployments, gotCommands}); err != nil || diff != "" {
			t.Errorf("%s: %v, what waits (-want +got):\n%s", when, err, diff)
		}
	}
	wantWaiting("at first", store.Backlog{}, store.Backlog{})
	a := e.putApp(t, "web")
	e.putApp(t, "api")
	gone := e.putApp(t, "gone")
	if err := e.store.DeleteApplication(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	d := e.create(t, "d1", a)
	c, err := e.store.CreateCommand(ctx, deploy.Command{ID: "c1", Type: deploy.CommandSync, ApplicationID: a.ID})
	if err != nil {
		t.Fatal(err)
	}
	wantWaiting("with one of each", store.Backlog{Count: 1, Since: d.Trigger.At}, store.Backlog{Count: 1, Since: c.CreatedAt})

	if counts, err := e.store.ApplicationsIn(ctx); err != nil || counts[a.Git.RepoID] != 2 || len(counts) != 1 {
		t.Errorf("applications by repository: %v, %v; want 2 in %s", counts, err, a.Git.RepoID)
	}
	disabled, differs := e.putApp(t, "off"), e.putApp(t, "db")
	must(t, e.store.SetDisabled(ctx, disabled.ID, true))
	if _, err := e.store.SetSyncState(ctx, differs.ID, deploy.SyncState{Status: deploy.OutOfSync}); err != nil {
		t.Fatal(err)
	}
	e.run(t, d.ID)
	states, err := e.store.SyncStates(ctx)
	want := map[deploy.SyncStatus]int{deploy.SyncUnknown: 1, deploy.OutOfSync: 1, deploy.SyncDeploying: 1}
	if diff := cmp.Diff(want, states); err != nil || diff != "" {
		t.Errorf("sync states: %v (-want +got):\n%s", err, diff)
	}
	must(t, e.store.CheckWrite(ctx))
	state := e.store.State(ctx)
	if !slices.Contains([]string{"sqlite", "postgres"}, state.Engine) || state.SchemaVersion < 6 || state.SizeBytes <= 0 || state.Error != "" {
		t.Errorf("state: %+v", state)
	}
}

func testDeploymentsByID(t *testing.T, e *env) {
	var ids []string
	for i := range 3 {
		a := e.putApp(t, fmt.Sprint("app", i))
		ids = append(ids, e.create(t, fmt.Sprint("d", i), a).ID)
	}
	for name, want := range map[string][]string{"all": ids, "one": ids[1:2], "none": nil} {
		asked := append(slices.Clone(want), "nobody")
		ds, err := e.store.DeploymentsByID(t.Context(), asked)
		var got []string
		for _, d := range ds {
			one, err := e.store.Deployment(t.Context(), d.ID)
			if diff := cmp.Diff(one, d); err != nil || diff != "" {
				t.Errorf("%s: %v, alone and among others (-want +got):\n%s", name, err, diff)
			}
			got = append(got, d.ID)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, deployments (-want +got):\n%s", name, err, diff)
		}
	}
	if ds, err := e.store.DeploymentsByID(t.Context(), nil); err != nil || len(ds) != 0 {
		t.Errorf("of nothing: %v, %v", ds, err)
	}
}
