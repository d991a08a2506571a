package workloads

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestLeaseOfTheControllers reads a Lease of a real API server: a renewal shows, one that
// does not exist has none, and an API server that does not answer is an error.
func TestLeaseOfTheControllers(t *testing.T) {
	shared := clustertest.Shared(t)
	ns := shared.Namespace(t)
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	now := time.Now()
	reader := &lease{cluster: c, name: types.NamespacedName{Namespace: ns, Name: "controllers"}, now: func() time.Time { return now }}
	read := func() rollout.Lease {
		t.Helper()
		got, err := reader.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(); got != (rollout.Lease{}) {
		t.Errorf("a Lease that does not exist: %+v", got)
	}
	renew := func(second int) {
		t.Helper()
		text := fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: controllers}, "+
			"spec: {holderIdentity: one, leaseDurationSeconds: 20, acquireTime: \"2026-03-01T11:00:00.000000Z\", renewTime: \"2026-03-01T12:00:%02d.000000Z\"}}", second)
		objects, err := manifest.Parse("lease.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Dynamic().Resource(leases).Namespace(ns).Apply(t.Context(), "controllers", objects[0].Unstructured, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(leaseMissing)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reader.read(cancelled); err == nil {
		t.Error("a read whose caller has ended succeeded")
	}
	if got := read(); got != (rollout.Lease{}) { // the end of that caller is no answer
		t.Errorf("a Lease that does not exist: %+v", got)
	}
	renew(1)
	if got := read(); got.Renewal != "" {
		t.Errorf("a missing Lease was asked for again at once: %+v", got)
	}
	now = now.Add(leaseMissing)
	first := read()
	if first.Renewal == "" || first.Lasts != 20*time.Second || first.Renewed.Sub(first.Acquired) != time.Hour+time.Second {
		t.Errorf("the Lease is %+v", first)
	}
	renew(3)
	if got := read(); got != first {
		t.Errorf("read again within a second: %+v", got)
	}
	now = now.Add(leaseFresh)
	if got := read(); got.Renewal == first.Renewal {
		t.Error("a renewal does not show")
	}
	now = now.Add(leaseFresh)
	gone, err := cluster.NewCluster(cluster.ClusterConfig{Name: "gone", MasterURL: "https://127.0.0.1:1", RetryFor: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if _, err := newLease(gone).read(t.Context()); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("an API server that does not answer: %v", err)
	}
}
