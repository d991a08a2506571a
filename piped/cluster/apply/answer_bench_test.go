package apply

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// BenchmarkAnswer measures the evaluation of the API server's response to an apply.
func BenchmarkAnswer(b *testing.B) {
	shared := clustertest.Shared(b)
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ns := shared.Namespace(b)
	objs, err := c.Resolve(context.Background(), parse(b, "app.yaml", web), ns, nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := New(c).Apply(context.Background(), Request{ApplicationID: "a", PipedID: "p", DeploymentID: "d", Commit: "c", Variant: "primary", Objects: objs, Log: quiet{}}); err != nil {
		b.Fatal(err)
	}
	for _, obj := range objs {
		b.Run(obj.GetKind(), func(b *testing.B) {
			resource, err := c.Resource(context.Background(), obj.GroupVersionKind())
			if err != nil {
				b.Fatal(err)
			}
			live, err := c.ResourceClient(resource, ns).Get(context.Background(), obj.GetName(), metav1.GetOptions{})
			if err != nil {
				b.Fatal(err)
			}
			text, err := live.MarshalJSON()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				u := live.NewEmptyInstance()
				if err := u.(interface{ UnmarshalJSON([]byte) error }).UnmarshalJSON(text); err != nil {
					b.Fatal(err)
				}
				(&target{}).answered(live)
			}
		})
	}
}
