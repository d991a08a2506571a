package observe

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestNudgesWaitForTheLease: an agent that has just started may not write until it has
// renewed its Lease; its pods wait for that, and the outcome is not a failure.
func TestNudgesWaitForTheLease(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	ns, kube := shared.Namespace(t), shared.Client(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/web:v1"}}}}
	if _, err := kube.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the API server's cache has the running pod", func() bool {
		pods, err := kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "0"})
		return err == nil && len(pods.Items) == 1
	})
	var asked atomic.Int32
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig(), Permit: func(context.Context) error {
		if asked.Add(1) < 3 {
			return errors.New("the Lease is not renewed yet")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)

	p := deploy.Propagation{
		Workload: deploy.ObjectRef{Version: "v1", Kind: "Pod", Namespace: ns, Name: "web"}, Selector: "app=web",
		Value: "new", ChangedAt: time.Now().Add(time.Hour),
	}
	out := nudge(t.Context(), c, p, &pace{})
	if out.Problem != "" || out.Pods != 1 {
		t.Errorf("outcome %+v, want one pod and no problem", out)
	}
	live, err := kube.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || live.Annotations[manifest.AnnotationConfigSync] == "" || asked.Load() < 3 {
		t.Errorf("annotations %v, %v; permission was asked for %d times", live.Annotations, err, asked.Load())
	}
}
