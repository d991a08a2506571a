package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// testHealth: a change of an application's health is stored once, together with its event.
func testHealth(t *testing.T, e *env) {
	ctx := t.Context()
	a, b := e.putApp(t, "a"), e.putApp(t, "b")
	setDegraded := func(id string, degraded bool, key string, want bool) {
		t.Helper()
		changed, err := e.store.SetDegraded(ctx, id, degraded, "because", deploy.Event{Key: key, Type: deploy.EventDegraded, ApplicationID: id, At: e.clock.now()})
		if err != nil || changed != want {
			t.Errorf("%s: changed %t (%v), want %t", key, changed, err, want)
		}
	}
	degraded := func(want ...string) {
		t.Helper()
		got, err := e.store.DegradedApplications(ctx)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("degraded (-want +got), %v:\n%s", err, diff)
		}
	}
	setDegraded(a.ID, false, "healthy as ever", false)
	setDegraded(b.ID, true, "b1", true)
	setDegraded(a.ID, true, "a1", true)
	setDegraded(a.ID, true, "a1 once more", false)
	degraded(a.ID, b.ID)
	e.wantEvents(t, "b1", "a1")
	why, err := e.store.Degradations(ctx)
	if len(why) != 2 || why[0].ApplicationID != a.ID || why[0].Reason != "because" || why[0].Since.IsZero() || err != nil {
		t.Errorf("degradations: %+v, %v", why, err)
	}
	setDegraded(a.ID, false, "a2", true)
	degraded(b.ID)

	e.create(t, "d", b)
	e.run(t, "d")
	_, err = e.store.SetDegraded(ctx, b.ID, false, "", deploy.Event{Key: "b2"})
	wantKind(t, err, deploy.Conflict, "under way")
	e.succeed(t, "d")
	setDegraded(b.ID, false, "b2", true)
	setDegraded(b.ID, true, "b3", true)
	degraded(b.ID)
	_, err = e.store.SetDegraded(ctx, "unknown", true, "", deploy.Event{Key: "n"})
	wantKind(t, err, deploy.NotFound, "")
}

// testInventoryKinds: InventoryKinds returns the workload kinds that were applied to a
// cluster.
func testInventoryKinds(t *testing.T, e *env) {
	a := e.putApp(t, "a")
	put := func(cluster, group, kind, name string) {
		t.Helper()
		err := e.store.PutInventory(t.Context(), deploy.InventoryItem{
			ApplicationID: a.ID, Cluster: cluster, Object: deploy.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: "n", Name: name},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("c", "apps", "StatefulSet", "x")
	put("c", "apps", "StatefulSet", "y")
	put("c", "apps", "Deployment", "x")
	put("c", "apps", "ReplicaSet", "x")
	put("c", "other", "DaemonSet", "x")
	put("elsewhere", "apps", "DaemonSet", "x")
	got, err := e.store.InventoryKinds(t.Context(), "c", "Deployment", "StatefulSet", "DaemonSet")
	if diff := cmp.Diff([]string{"Deployment", "StatefulSet"}, got); diff != "" || err != nil {
		t.Errorf("kinds (-want +got), %v:\n%s", err, diff)
	}
}
