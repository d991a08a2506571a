package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testForeignRolloutRetention: old rollouts of workloads that no longer exist and belong to no
// application are removed, in batches, and no others.
func testForeignRolloutRetention(t *testing.T, e *env) {
	ctx, web, removed := t.Context(), e.putApp(t, "web"), e.putApp(t, "removed")
	e.create(t, "d1", web)
	if err := e.store.DeleteApplication(ctx, removed.ID); err != nil {
		t.Fatal(err)
	}
	ref := func(name string) deploy.ObjectRef {
		return deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}
	}
	save := func(r deploy.Rollout, workload string) {
		t.Helper()
		r.Workload, r.AppliedAt = ref(workload), e.clock.now()
		if r.Cluster == "" {
			r.Cluster = "c"
		}
		if _, err := e.store.SaveRollout(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	const complete = deploy.RolloutComplete
	for _, id := range []string{"gone 1", "gone 2", "gone 3"} {
		save(deploy.Rollout{ID: id, Phase: complete}, "deleted")
	}
	save(deploy.Rollout{ID: "gone, scaled", Kind: deploy.RolloutKindScaling, Phase: complete}, "deleted")
	save(deploy.Rollout{ID: "gone with its app", ApplicationID: removed.ID, Phase: complete}, "deleted-app")
	save(deploy.Rollout{ID: "gone from this cluster", Cluster: "d", Phase: complete}, "exists")
	save(deploy.Rollout{ID: "in progress", Phase: deploy.RolloutProgressing}, "deleted")
	save(deploy.Rollout{ID: "exists", Phase: complete}, "exists")
	save(deploy.Rollout{ID: "of an app", ApplicationID: web.ID, Phase: complete}, "web")
	save(deploy.Rollout{ID: "of a deployment", ApplicationID: web.ID, DeploymentID: "d1", StageID: "s", Phase: complete}, "web")
	err := e.store.WatchCluster(ctx, store.WatchedCluster{Cluster: "c"}, []deploy.WorkloadRevision{{Cluster: "c", Workload: ref("exists").Key(), UID: "u", Revision: 1}})
	if err != nil {
		t.Fatal(err)
	}
	e.pass(24 * time.Hour)
	before := e.clock.now()
	e.pass(time.Hour)
	save(deploy.Rollout{ID: "young", Phase: complete}, "deleted")

	for _, want := range []int{2, 2, 2, 0} {
		n, err := e.store.RemoveForeignRollouts(ctx, before, 2)
		if err != nil || n != want {
			t.Fatalf("removed %d, %v; want %d", n, err, want)
		}
	}
	left, _, err := e.store.ListRollouts(ctx, store.RolloutList{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range left {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	if diff := cmp.Diff([]string{"exists", "in progress", "of a deployment", "of an app", "young"}, ids); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if err := e.store.ForgetWorkload(ctx, "c", ref("exists").Key()); err != nil {
		t.Fatal(err)
	}
	if n, err := e.store.RemoveForeignRollouts(ctx, before, 2); n != 1 || err != nil {
		t.Errorf("after the workload was deleted: removed %d, %v; want 1", n, err)
	}
}
