package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testWorkloadRevisions: what is known of the workloads of a watched cluster.
func testWorkloadRevisions(t *testing.T, e *env) {
	ctx := context.Background()
	if _, _, err := e.store.WatchedCluster(ctx, "one"); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("a cluster that was never watched: %v", err)
	}
	since := time.UnixMilli(1_700_000_000_123)
	web := deploy.WorkloadRevision{Cluster: "one", Workload: "apps/Deployment/shop/web", UID: "u1", Revision: 3, Images: "web:3 proxy:1"}
	many := []deploy.WorkloadRevision{web}
	for i := range 700 { // more than one statement
		many = append(many, deploy.WorkloadRevision{Cluster: "one", Workload: fmt.Sprintf("apps/StatefulSet/shop/db-%d", i), UID: "u"})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.store.WatchCluster(ctx, store.WatchedCluster{Cluster: "one", Namespaces: "shop", Since: since}, many))
	must(e.store.WatchCluster(ctx, store.WatchedCluster{Cluster: "two", Since: since}, []deploy.WorkloadRevision{{Cluster: "two", Workload: web.Workload, UID: "u2", Revision: 1}}))
	want := map[string]deploy.WorkloadRevision{}
	for _, r := range many {
		want[r.Workload] = r
	}
	check := func() {
		t.Helper()
		w, got, err := e.store.WatchedCluster(ctx, "one")
		if err != nil || w.Namespaces != "shop" || !w.Since.Equal(since) {
			t.Fatalf("%+v, %v", w, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("revisions (-want +got):\n%s", diff)
		}
	}
	check()
	web.Revision, web.Images, web.UID = 4, "web:4 proxy:1", "u3"
	fresh := deploy.WorkloadRevision{Cluster: "one", Workload: "apps/DaemonSet/shop/log", UID: "u4"}
	must(e.store.SaveWorkloadRevision(ctx, web))
	must(e.store.SaveWorkloadRevision(ctx, fresh))
	must(e.store.ForgetWorkload(ctx, "one", many[1].Workload))
	want[web.Workload], want[fresh.Workload] = web, fresh
	delete(want, many[1].Workload)
	check()
	if _, other, err := e.store.WatchedCluster(ctx, "two"); err != nil || len(other) != 1 || other[web.Workload].UID != "u2" {
		t.Errorf("the other cluster: %v, %v", other, err)
	}
	must(e.store.ForgetClusters(ctx, []string{"one", "three"}))
	check()
	if _, _, err := e.store.WatchedCluster(ctx, "two"); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("a cluster that was removed: %v", err)
	}
	must(e.store.WatchCluster(ctx, store.WatchedCluster{Cluster: "one", Namespaces: "shop", Since: since}, nil))
	want = map[string]deploy.WorkloadRevision{}
	check()
	must(e.store.ForgetClusters(ctx, nil))
	if _, _, err := e.store.WatchedCluster(ctx, "one"); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("the last cluster was removed: %v", err)
	}
}
