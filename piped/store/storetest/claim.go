package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// configMap returns a reference to a ConfigMap in an API version.
func configMap(name, version string) deploy.ObjectRef {
	return deploy.ObjectRef{Version: version, Kind: "ConfigMap", Namespace: "shop", Name: name}
}

// claimed makes a claim and fails the test unless exactly the objects in want belong to other
// applications.
func (e *env) claimed(t *testing.T, c store.Claim, want []store.TakenObject, refs ...deploy.ObjectRef) {
	t.Helper()
	got, err := e.store.ClaimObjects(t.Context(), c, refs...)
	must(t, err)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(deploy.ObjectRef{}, "Version")); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
}

// testClaims: an object belongs to the application that claimed it first, while its deployment
// runs or its inventory contains the object.
func testClaims(t *testing.T, e *env) {
	ctx := t.Context()
	a, b := e.putApp(t, "a"), e.putApp(t, "b")
	e.create(t, "d1", a)
	e.run(t, "d1")
	byA := store.Claim{ApplicationID: a.ID, Cluster: "uid", Provider: "c", DeploymentID: "d1"}
	byB := store.Claim{ApplicationID: b.ID, Cluster: "uid", Provider: "c", DeploymentID: "d2"}
	x, y := configMap("x", "v1"), configMap("y", "v1")
	e.claimed(t, byA, nil, x, x, y)
	e.claimed(t, byA, nil, x, y)
	e.claimed(t, byB, []store.TakenObject{{Object: x, ApplicationID: a.ID}}, configMap("z", "v1"), configMap("x", "v2"))
	e.claimed(t, byA, nil, configMap("z", "v1")) // the rejected claim has claimed nothing
	elsewhere := byB
	elsewhere.Cluster, elsewhere.Provider = "other", "elsewhere"
	e.claimed(t, elsewhere, nil, x)

	e.succeed(t, "d1")
	must(t, e.store.PutInventory(ctx, deploy.InventoryItem{ApplicationID: a.ID, Cluster: "c", Object: x, UID: "1"}))
	e.claimed(t, byB, nil, y) // it was not applied
	e.claimed(t, byB, []store.TakenObject{{Object: x, ApplicationID: a.ID}}, x)
	takeOver := byB
	takeOver.TakeOver = true
	e.claimed(t, takeOver, nil, x)
	must(t, e.store.PutInventory(ctx, deploy.InventoryItem{ApplicationID: b.ID, Cluster: "c", Object: x, UID: "1"}))
	e.claimed(t, byA, []store.TakenObject{{Object: x, ApplicationID: b.ID}}, x)
	must(t, e.store.DeleteInventory(ctx, b.ID, "c", x))
	e.claimed(t, byA, nil, x)
	e.claimed(t, byB, []store.TakenObject{{Object: x, ApplicationID: a.ID}}, x)
	must(t, e.store.DeleteApplication(ctx, a.ID))
	e.claimed(t, byB, nil, x)
	_, err := e.store.ClaimObjects(ctx, store.Claim{ApplicationID: "unknown", Cluster: "uid", Provider: "c", DeploymentID: "d"}, configMap("free", "v1"))
	wantKind(t, err, deploy.NotFound, "unknown")
}

// testClaimsOfOneCluster: an object of a cluster belongs to one application, regardless of the
// platform providers that refer to the cluster. If the identity of a provider's cluster
// becomes known or changes, the claims of its applications move to the new identity.
func testClaimsOfOneCluster(t *testing.T, e *env) {
	a, b := e.putApp(t, "a"), e.putApp(t, "b")
	claim := func(app deploy.Application, provider, cluster string) store.Claim {
		return store.Claim{ApplicationID: app.ID, Cluster: cluster, Provider: provider, DeploymentID: "d-" + app.ID}
	}
	for _, app := range []deploy.Application{a, b} {
		e.create(t, "d-"+app.ID, app)
		e.run(t, "d-"+app.ID)
	}
	x, y, z := configMap("x", "v1"), configMap("y", "v1"), configMap("z", "v1")
	e.claimed(t, claim(a, "inside", "uid"), nil, x)
	e.claimed(t, claim(b, "outside", "uid"), []store.TakenObject{{Object: x, ApplicationID: a.ID}}, x, y)
	e.claimed(t, claim(b, "outside", "uid"), nil, y)
	e.claimed(t, claim(a, "inside", "uid"), []store.TakenObject{{Object: y, ApplicationID: b.ID}}, y)

	e.claimed(t, claim(a, "inside", "new uid"), nil, z) // x, too
	e.claimed(t, claim(b, "third", "new uid"), []store.TakenObject{{Object: x, ApplicationID: a.ID}, {Object: z, ApplicationID: a.ID}}, x, z)
	e.claimed(t, claim(b, "third", "address"), nil, x) // the cluster's identity was unknown
	e.claimed(t, claim(b, "third", "new uid"), []store.TakenObject{{Object: x, ApplicationID: a.ID}}, x)
	must(t, e.store.PutInventory(t.Context(), deploy.InventoryItem{ApplicationID: a.ID, Cluster: "inside", Object: z, UID: "1"}))
	must(t, e.store.DeleteInventory(t.Context(), a.ID, "inside", z))
	e.claimed(t, claim(b, "third", "new uid"), nil, z)
}

// testConcurrentClaims: of applications that claim the same objects concurrently, in any order
// and through different platform providers, one gets all of them.
func testConcurrentClaims(t *testing.T, e *env) {
	const applications, objects = 4, 20
	var claims sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range applications {
		app, id := e.putApp(t, fmt.Sprintf("app-%d", i)), fmt.Sprintf("d%d", i)
		e.create(t, id, app)
		e.run(t, id)
		var refs []deploy.ObjectRef
		for j := range objects {
			refs = append(refs, configMap(fmt.Sprint((j*(2*i+1)+i)%objects), "v1"))
		}
		claims.Go(func() {
			taken, err := e.store.ClaimObjects(t.Context(), store.Claim{ApplicationID: app.ID, Cluster: "uid", Provider: fmt.Sprint("c", i%2), DeploymentID: id}, refs...)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("claim: %v", err)
			case len(taken) == 0:
				won++
			}
		})
	}
	claims.Wait()
	if won != 1 {
		t.Errorf("%d applications have got the objects, want 1", won)
	}
}
