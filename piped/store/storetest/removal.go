package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
)

func (e *env) removeCommand(id string, a deploy.Application, cascade bool) deploy.Command {
	return deploy.Command{ID: id, Type: deploy.CommandDeleteApplication, ApplicationID: a.ID, Commander: "ann", Cascade: cascade}
}

func (e *env) putInventory(t *testing.T, a deploy.Application, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, e.store.PutInventory(t.Context(), deploy.InventoryItem{
			ApplicationID: a.ID, Cluster: "c", UID: "uid-" + name, Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: name},
		}))
	}
}

// testRemoval deletes an application with its objects: after the command nothing of it is
// deployed, and it cannot be added again before the command is completed.
func testRemoval(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.putInventory(t, a, "one", "two", "three")
	e.create(t, "first", a)
	e.run(t, "first")
	_, err := e.store.RemoveApplication(ctx, e.removeCommand("early", a, true))
	wantKind(t, err, deploy.Illegal, "deployment first of application app-web is active")
	e.succeed(t, "first")
	e.create(t, "waits", a)

	got, err := e.store.RemoveApplication(ctx, e.removeCommand("remove", a, true))
	if err != nil {
		t.Fatal(err)
	}
	want := e.removeCommand("remove", a, true)
	want.Status, want.Metadata = deploy.CommandOpen, map[string]string{deploy.MetaApplied: "3"}
	ignored := cmpopts.IgnoreFields(deploy.Command{}, "CreatedAt", "UpdatedAt", "HandledAt")
	if diff := cmp.Diff(want, got, ignored); diff != "" {
		t.Errorf("the command (-want +got):\n%s", diff)
	}
	if app, err := e.store.Application(ctx, a.ID); err != nil || !app.Deleted {
		t.Errorf("the application is %+v, %v", app, err)
	}
	if d, err := e.store.Deployment(ctx, "waits"); err != nil || d.Status != deploy.Cancelled {
		t.Errorf("what waited is %s, %v", d.Status, err)
	}
	_, err = e.store.RemoveApplication(ctx, e.removeCommand("again", a, true))
	wantKind(t, err, deploy.Illegal, "wait until command remove is answered")
	wantKind(t, e.store.AddApplication(ctx, a), deploy.Illegal, "wait until command remove is answered")

	must(t, e.store.NoteCommand(ctx, "remove", map[string]string{deploy.MetaWaiting: "one", deploy.MetaLeft: "two"}))
	must(t, e.store.NoteCommand(ctx, "remove", map[string]string{deploy.MetaWaiting: ""}))
	items, err := e.store.Inventory(ctx, a.ID)
	if err != nil || len(items) != 3 {
		t.Fatalf("inventory: %v, %v", items, err)
	}
	must(t, e.store.FinishRemoval(ctx, got, deploy.CommandFailed, map[string]string{deploy.MetaReason: "held"}, items[:1]))
	stored, err := e.store.Command(ctx, "remove")
	want.Status, want.Metadata = deploy.CommandFailed, map[string]string{deploy.MetaApplied: "3", deploy.MetaLeft: "two", deploy.MetaReason: "held"}
	if diff := cmp.Diff(want, stored, ignored); diff != "" || err != nil {
		t.Errorf("the command in the end, %v (-want +got):\n%s", err, diff)
	}
	if app, err := e.store.Application(ctx, a.ID); err != nil || app.LastSuccessful == nil {
		t.Errorf("the last success of what was not removed is gone: %v", err)
	}
	wantKind(t, e.store.FinishRemoval(ctx, got, deploy.CommandSucceeded, nil, nil), deploy.Conflict, "answered before")
	wantKind(t, e.store.NoteCommand(ctx, "remove", nil), deploy.Conflict, "answered before")

	// The rest of the inventory is removed by another command.
	got, err = e.store.RemoveApplication(ctx, e.removeCommand("rest", a, true))
	if err != nil || got.Metadata[deploy.MetaApplied] != "2" {
		t.Fatalf("for the rest: %+v, %v", got, err)
	}
	must(t, e.store.FinishRemoval(ctx, got, deploy.CommandSucceeded, nil, items[1:]))
	if app, err := e.store.Application(ctx, a.ID); err != nil || app.LastSuccessful != nil {
		t.Errorf("the last success of what was removed: %+v, %v", app.LastSuccessful, err)
	}
	_, err = e.store.RemoveApplication(ctx, e.removeCommand("nothing", a, true))
	wantKind(t, err, deploy.NotFound, "nothing is left")
	must(t, e.store.AddApplication(ctx, a))
}

// testPlainRemoval: without Cascade the command is completed at once.
func testPlainRemoval(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.putInventory(t, a, "one")
	e.create(t, "runs", a)
	e.run(t, "runs")
	got, err := e.store.RemoveApplication(ctx, e.removeCommand("remove", a, false))
	if err != nil || got.Status != deploy.CommandSucceeded || got.HandledAt.IsZero() {
		t.Fatalf("the command is %+v, %v", got, err)
	}
	if d, err := e.store.Deployment(ctx, "runs"); err != nil || d.Status != deploy.Running {
		t.Errorf("what ran is %s, %v", d.Status, err)
	}
	_, err = e.store.RemoveApplication(ctx, e.removeCommand("again", a, false))
	wantKind(t, err, deploy.NotFound, "is deleted")
	_, err = e.store.RemoveApplication(ctx, e.removeCommand("nobody", deploy.Application{ID: "nobody"}, false))
	wantKind(t, err, deploy.NotFound, "nobody")
	must(t, e.store.AddApplication(ctx, a))
}
