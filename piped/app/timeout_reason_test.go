package app

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestTimeoutKeepsTheReason: a deployment that times out while a finalizer holds its
// old pods names the finalizer, and so does its stage.
func TestTimeoutKeepsTheReason(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	files := func(image, timeouts string) map[string]string {
		out := webApp(ns, image, "")
		out["web/app.pipecd.yaml"] += timeouts
		out["web/app.yaml"] = strings.NewReplacer(
			"  replicas: 2\n", "  replicas: 2\n  strategy: {type: Recreate}\n",
			"metadata: {labels: {app: web},", "metadata: {finalizers: [example.test/hold], labels: {app: web},",
			"    spec:\n", "    spec:\n      terminationGracePeriodSeconds: 1\n",
		).Replace(out["web/app.yaml"])
		return out
	}
	t.Cleanup(func() { // or the namespace is never gone
		pods, err := client.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return
		}
		for _, pod := range pods.Items {
			_, _ = client.CoreV1().Pods(ns).Patch(context.Background(), pod.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		}
	})
	agent.mustEnd(appID("web"), repo.Push(t, "add web", files("v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	commit := repo.Push(t, "web v2", files("v2", "  timeout: 3m\n"))
	d := agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	const why = "held by finalizer example.test/hold"
	mustContain(t, d.GetStatusReason(), "Stage K8S_SYNC failed: the deployment timed out after 3m0s", why)
	mustContain(t, d.GetStages()[0].GetStatusReason(), why)
	if t.Failed() {
		t.Log(agent.logs(d.GetId()))
	}
}
