package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/storetest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestMoveRestartsNothing: an application whose directory is renamed keeps its ID, its
// objects and its pods, and is deployed from its new directory.
func TestMoveRestartsNothing(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	live := func() (out []string) {
		t.Helper()
		pods, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods.Items {
			out = append(out, fmt.Sprintf("pod %s, %d restarts", pod.UID, pod.Status.ContainerStatuses[0].RestartCount))
		}
		slices.Sort(out)
		d, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return append(out, fmt.Sprintf("deployment %s, generation %d", d.UID, d.Generation), fmt.Sprintf("config map %s", c.UID))
	}
	moved := func(image string) map[string]string {
		out := map[string]string{}
		for name, text := range webApp(ns, image, "") {
			out["store"+strings.TrimPrefix(name, "web")] = text
		}
		return out
	}
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	before := live()

	if err := repo.Remove("web/app.pipecd.yaml", "web/app.yaml"); err != nil {
		t.Fatal(err)
	}
	commit := repo.Push(t, "git mv web store", moved("v1"))
	agent.awaitEvaluated(web, commit)
	for _, d := range agent.deployments(web) {
		agent.mustEnd(web, d.GetTrigger().GetCommit().GetHash(), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	agent.awaitSyncState(web, modelv1.ApplicationSyncStatus_SYNCED)
	if got := agent.application(web).GetGitPath().GetPath(); got != "store" {
		t.Errorf("the application is in %q, want store", got)
	}
	if diff := cmp.Diff(before, live()); diff != "" {
		t.Errorf("the move changed live objects (-before +after):\n%s", diff)
	}
	agent.mustEnd(web, repo.Push(t, "web v2", moved("v2")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestNameOfAnApplicationWithoutOne: the name is the one with which the application was
// added, else that of its directory.
func TestNameOfAnApplicationWithoutOne(t *testing.T) {
	t.Parallel()
	st := storetest.New(t, nil)
	at := deploy.GitPath{RepoID: "apps", Dir: "shop/db", ConfigFile: "app.pipecd.yaml"}
	name := registeredName(st)
	if got := name(t.Context(), at); got != "db" {
		t.Errorf("before the registration the name is %q, want db", got)
	}
	if err := st.AddApplication(context.Background(), deploy.Application{
		ID: "one", Name: "orders", Kind: deploy.KindKubernetes, Git: at, Provider: "local",
		Sync: deploy.SyncState{Status: deploy.SyncUnknown}, Registration: deploy.Registration{By: "ann", Name: "orders"},
	}); err != nil {
		t.Fatal(err)
	}
	if got := name(t.Context(), at); got != "orders" {
		t.Errorf("added as orders, the name is %q", got)
	}
}
