package observe

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestWorkloadsDoNotWaitForEachOther: a rollout is recorded from its start to its end while the cluster
// does not answer what is asked of another workload of its kind.
func TestWorkloadsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	l, link := newEnv(t), &clustertest.Link{}
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: l.Name(), KubeConfigPath: clustertest.Shared(t).Kubeconfig(), WrapTransport: link.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l.Cluster = c
	l.watchAll(t)
	held, answer := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release)
	noteHeld := sync.OnceFunc(func() { close(held) })
	link.Set(func() {
		link.Answer = func(r *http.Request) *http.Response {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments/web") {
				noteHeld()
				select {
				case <-answer:
				case <-r.Context().Done():
				}
			}
			return nil
		}
	})
	l.apply(t, rollout.KindDeployment, "web:1")
	<-held
	text := strings.ReplaceAll(workloadstest.Text(rollout.KindDeployment, "web:1", ""), "web", "other")
	objects, err := manifest.Parse("other.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	client := l.Dynamic().Resource(workloads.Resource(rollout.KindDeployment)).Namespace(l.Namespace)
	if _, err := client.Apply(t.Context(), "other", objects[0].Unstructured, metav1.ApplyOptions{FieldManager: "helm", Force: true}); err != nil {
		t.Fatal(err)
	}
	ended := func(name string) func() bool {
		return func() bool {
			for _, rec := range l.external(t) {
				if rec.Workload.Name == name {
					return rec.Phase == deploy.RolloutComplete
				}
			}
			return false
		}
	}
	clustertest.Eventually(t, "the other rollout has ended", ended("other"))
	if n := len(l.external(t)); n != 1 {
		t.Errorf("there are %d records while one workload cannot be read", n)
	}
	release()
	clustertest.Eventually(t, "the first rollout has ended", ended("web"))
}
