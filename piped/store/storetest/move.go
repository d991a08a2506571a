package storetest

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/google/go-cmp/cmp"
)

// testMove: a moved application keeps its ID, and its references to deployments get the
// location at that deployment.
func testMove(t *testing.T, e *env) {
	ctx, a, other := t.Context(), e.putApp(t, "web"), e.putApp(t, "other")
	e.create(t, "d1", a)
	e.run(t, "d1")
	e.succeed(t, "d1")
	to := a.Git.In("apps/store", "")
	if err := e.store.MoveApplication(ctx, a.ID, a.Git, to); err != nil {
		t.Fatal(err)
	}
	wantKind(t, e.store.MoveApplication(ctx, a.ID, a.Git, to), deploy.Conflict, "cannot be moved from apps/web/app.pipecd.yaml")
	wantKind(t, e.store.MoveApplication(ctx, other.ID, other.Git, to), deploy.Conflict, "application app-web is at apps/store/app.pipecd.yaml already")
	wantKind(t, e.store.MoveApplication(ctx, "nobody", to, to), deploy.NotFound, "nobody")
	moved := a
	moved.Git, moved.Description = to, "the commit after the move"
	if _, err := e.store.PutApplication(ctx, moved); err != nil {
		t.Fatal(err)
	}
	got, err := e.store.Application(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	former := []deploy.GitPath{{Dir: "apps/web", ConfigFile: "app.pipecd.yaml"}}
	if diff := cmp.Diff(former, got.Former); diff != "" || got.Git != to || got.LastSuccessful.At(got.Git).Dir != "apps/web" || got.LastTriggered.Dir != "apps/web" {
		t.Errorf("after the move: %+v, former places (-want +got):\n%s", got, diff)
	}
	places, err := e.store.Places(ctx, "repo")
	if err != nil {
		t.Fatal(err)
	}
	if id := places.ID(to); id != a.ID {
		t.Errorf("in the new place is %s", id)
	}
	if got, err := e.store.ApplicationAt(ctx, to); err != nil || got.ID != a.ID {
		t.Errorf("the application in the new place is %s, %v", got.ID, err)
	}
	_, err = e.store.ApplicationAt(ctx, a.Git)
	wantKind(t, err, deploy.NotFound, "there is no application at apps/web/app.pipecd.yaml")
	if err := e.store.MoveApplication(ctx, a.ID, to, a.Git); err != nil {
		t.Fatal(err)
	}
	if got, err = e.store.Application(ctx, a.ID); err != nil || got.Git != a.Git || len(got.Former) != 1 || got.Former[0].Dir != "apps/store" {
		t.Errorf("after the move back: %+v, %v", got, err)
	}
}

// testIdentity: a store has one permanent ID.
func testIdentity(t *testing.T, e *env) {
	first, err := e.store.Identity(t.Context())
	if err != nil || first == "" {
		t.Fatalf("identity %q, %v", first, err)
	}
	if again, err := e.store.Identity(t.Context()); err != nil || again != first {
		t.Errorf("asked again: %q, %v, want %q", again, err, first)
	}
}
