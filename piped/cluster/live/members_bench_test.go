package live

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
	"github.com/c785c783/piped/piped/manifest"
)

// heap returns the number of heap bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// metadataOfMember is the metadata that the API server returns for an object that the
// agent applied.
func metadataOfMember(i int) *metav1.PartialObjectMetadata {
	application := fmt.Sprintf("0f9a3c1e-0000-5000-8000-%012d", i/10)
	name := fmt.Sprintf("settings-%06d", i)
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: fmt.Sprintf("shop-%d", i%100), UID: types.UID(fmt.Sprintf("f59a5edf-cacc-4d43-b723-%012d", i)), ResourceVersion: fmt.Sprint(100000 + i),
		Labels: map[string]string{manifest.LabelApplication: application},
		Annotations: map[string]string{
			manifest.AnnotationManagedBy: manifest.ManagedBy, manifest.AnnotationPiped: "piped-1", manifest.AnnotationApplication: application,
			manifest.AnnotationOriginalAPIVersion: "v1", manifest.AnnotationResourceKey: "v1:ConfigMap:shop:" + name, annotationVariant: "primary",
			manifest.AnnotationCommitHash: strings.Repeat("c", 40),
		},
		ManagedFields: []metav1.ManagedFieldsEntry{applytest.Written(cluster.FieldManager, metav1.ManagedFieldsOperationApply, "",
			`{"f:data":{"f:color":{}},"f:metadata":{"f:annotations":{"f:pipecd.dev/application":{},"f:pipecd.dev/commit-hash":{}},"f:labels":{"f:pipecd.dev/application":{}}}}`, time.Unix(0, 0))},
	}}
}

// TestAMemberIsKeptInLittleMemory: a member must use less than the limit of 1 KiB per
// object, including the tables of the caches.
func TestAMemberIsKeptInLittleMemory(t *testing.T) {
	const n = 3_000
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byApplication: applicationOf})
	before := heap()
	for i := range n {
		kept, err := reduceMember(metadataOfMember(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Add(kept); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / n
	t.Logf("%d bytes for a member", each)
	if each < 100 || each > 768 {
		t.Errorf("%d bytes for a member, want at most 768", each)
	}
	runtime.KeepAlive(store)
}

// BenchmarkKeepMember measures the handling of one event.
func BenchmarkKeepMember(b *testing.B) {
	o := metadataOfMember(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reduceMember(o, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStartWith10000Members measures the time from the start until all objects of
// 1,000 applications are known to be in sync, without a request for any object.
func BenchmarkStartWith10000Members(b *testing.B) {
	const n, perApplication = 10_000, 10
	shared := clustertest.Shared(b)
	ns := shared.Namespace(b)
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	items := make([]deploy.InventoryItem, n)
	var g errgroup.Group
	g.SetLimit(8)
	began := time.Now()
	for app := range n / perApplication {
		g.Go(func() error {
			var text strings.Builder
			for i := range perApplication {
				fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m-%d-%d, namespace: %s}\ndata: {color: blue}\n", app, i, ns)
			}
			result, err := apply.New(c).Apply(context.Background(), apply.Request{
				ApplicationID: fmt.Sprintf("app-%d", app), PipedID: "piped-1", DeploymentID: "d", Commit: "c", Variant: "primary",
				Objects: parse(b, text.String()), Log: &deploytest.Log{},
			})
			copy(items[app*perApplication:], result.Items)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d objects applied in %s", n, time.Since(began).Round(time.Millisecond))
	refs := refsOf(items)
	for b.Loop() {
		before := heap()
		ctx, cancel := context.WithCancel(context.Background())
		controller := watch.New(c)
		m := NewMembers(c, controller, func(string) {})
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- controller.Run(ctx) }()
		m.Follow(refs)
		for _, err := m.Ready(refs[0]); err != nil; _, err = m.Ready(refs[0]) {
			time.Sleep(time.Millisecond)
		}
		filled := time.Since(began)
		synced := 0
		for _, item := range items {
			if live, ok := m.Get(item.Object); ok && InSync(item, live) {
				synced++
			}
		}
		if synced != n {
			b.Errorf("%d of %d in sync", synced, n)
		}
		b.ReportMetric(float64(filled.Milliseconds()), "ms-filled")
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-to-evaluation")
		b.ReportMetric(float64(heap()-before)/n, "B/member")
		cancel()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
}
