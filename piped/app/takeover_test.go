package app

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/kubernetes/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestLostDatabaseIsMadeGood: an agent with an empty data directory takes over
// what an earlier one deployed without restarting a pod, and then deploys what
// the branch has brought since by comparing with it.
func TestLostDatabaseIsMadeGood(t *testing.T) {
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	web := appID("web")
	var first string
	t.Run("before", func(t *testing.T) {
		agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
		first = repo.Push(t, "add web", webApp(ns, "v1", ""))
		agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	})
	pods := func() (names []string) {
		t.Helper()
		list, err := kube.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		return names
	}
	was := pods()
	files := webApp(ns, "v1", "")
	files["web/more.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n"
	second := repo.Push(t, "one more object", files)

	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	d := agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, d.GetSummary(), "Taking over what runs", first[:7])
	d = agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if d.GetRunningCommitHash() != first {
		t.Errorf("the second deployment compares with %q, want %s", d.GetRunningCommitHash(), first)
	}
	mustContain(t, agent.logs(d.GetId()), "1 created")
	if diff := cmp.Diff(was, pods()); diff != "" {
		t.Errorf("pods were replaced (-before +after):\n%s", diff)
	}
}
