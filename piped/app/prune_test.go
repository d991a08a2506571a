package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestPrune removes objects from Git: they stay while prune is off and are deleted by the
// first sync with prune on. A Namespace is kept unless it is named.
func TestPrune(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	extra := ns + "-extra"
	t.Cleanup(func() { // the test's own namespace goes by itself; this one is the application's
		err := client.CoreV1().Namespaces().Delete(context.Background(), extra, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Logf("delete namespace %s: %v", extra, err)
		}
	})
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	config := func(more string) map[string]string {
		return map[string]string{"web/app.pipecd.yaml": webApp(ns, "v1", "")["web/app.pipecd.yaml"] + more}
	}
	configMap := func(name string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n" }
	wantLive := func(when string, names ...string) {
		t.Helper()
		for _, name := range []string{"web", "one", "two"} {
			_, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{})
			if want := strings.Contains(fmt.Sprint(names), name); (err == nil) != want || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: ConfigMap %s wanted %v: %v", when, name, want, err)
			}
		}
		if live, err := client.CoreV1().Namespaces().Get(t.Context(), extra, metav1.GetOptions{}); err != nil || live.DeletionTimestamp != nil {
			t.Errorf("%s: Namespace %s is gone: %v", when, extra, err)
		}
	}

	files := webApp(ns, "v1", "")
	files["web/one.yaml"], files["web/two.yaml"] = configMap("one"), configMap("two")
	files["web/namespace.yaml"] = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + extra + "}\n"
	agent.mustEnd(web, repo.Push(t, "add web", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	wantLive("at first", "web", "one", "two")

	if err := repo.Remove("web/one.yaml", "web/namespace.yaml"); err != nil {
		t.Fatal(err)
	}
	agent.mustEnd(web, repo.Push(t, "remove one and the namespace", nil), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	wantLive("without prune", "web", "one", "two")

	if err := repo.Remove("web/two.yaml"); err != nil {
		t.Fatal(err)
	}
	d := agent.mustEnd(web, repo.Push(t, "prune, and remove two", config("  quickSync: {prune: true}\n")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	wantLive("with prune", "web")
	log := agent.logs(d.GetId())
	for _, line := range []string{
		"deleted ConfigMap " + ns + "/one", "deleted ConfigMap " + ns + "/two",
		"Namespace " + extra + " is no longer in Git; its kind is deleted only if spec.pruneKinds names it",
	} {
		if !strings.Contains(log, line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}

	again := agent.sync(web)
	d = agent.await(web, "was asked for by hand and ended", func(d *modelv1.Deployment) bool {
		return d.GetId() == again.GetMetadata()["TriggeredDeploymentID"] && d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	if log := agent.logs(d.GetId()); d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS || strings.Contains(log, "deleted ConfigMap") {
		t.Errorf("syncing again ended as %s because %q:\n%s", d.GetStatus(), d.GetStatusReason(), log)
	}

	d = agent.mustEnd(web, repo.Push(t, "name the kind", config("  quickSync: {prune: true}\n  pruneKinds: [Namespace]\n")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	live, err := client.CoreV1().Namespaces().Get(t.Context(), extra, metav1.GetOptions{})
	if err == nil && live.DeletionTimestamp == nil {
		t.Errorf("the Namespace is still there although pruneKinds names it:\n%s", agent.logs(d.GetId()))
	}
}

// TestConfirmedPrune: a commit that removes most of an application changes nothing.
// Repeated with a user's permission, it deletes the named objects.
func TestConfirmedPrune(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	files := webApp(ns, "v1", "")
	files["web/app.pipecd.yaml"] += "  quickSync: {prune: true}\n"
	many := ""
	for i := range 12 {
		many += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: many-%02d}\n", i)
	}
	files["web/many.yaml"] = many
	agent.mustEnd(web, repo.Push(t, "add web", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	if err := repo.Remove("web/many.yaml"); err != nil {
		t.Fatal(err)
	}
	image := func() string {
		t.Helper()
		d, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Spec.Containers[0].Image
	}
	files = webApp(ns, "v2", "")
	files["web/app.pipecd.yaml"] += "  quickSync: {prune: true}\n"
	lost := repo.Push(t, "lose most of it", files)
	d := agent.mustEnd(web, lost, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "prune would delete 12 of 14 objects", "many-11", "--app-id="+web+" --confirm-prune")
	if got := image(); !strings.HasSuffix(got, ":v1") {
		t.Errorf("the refused deployment changed the image to %s", got)
	}

	confirmed, err := agent.control.ConfirmPrune(agent.ctx, &controlv1.ConfirmPruneRequest{ApplicationId: web})
	if err != nil || len(confirmed.GetObjects()) != 12 {
		t.Fatalf("confirm: %v, %v", confirmed, err)
	}
	command := agent.answer(confirmed.GetCommandId())
	again := agent.await(web, "was repeated and ended", func(d *modelv1.Deployment) bool {
		return d.GetId() == command.GetMetadata()["TriggeredDeploymentID"] && d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	if again.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS || again.GetTrigger().GetCommit().GetHash() != lost {
		t.Fatalf("repeated, it ended %s: %s", again.GetStatus(), again.GetStatusReason())
	}
	left, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "pipecd.dev/application=" + web})
	if err != nil || len(left.Items) != 1 {
		t.Errorf("%d ConfigMaps are left, want 1: %v", len(left.Items), err)
	}
	if got := image(); !strings.HasSuffix(got, ":v2") {
		t.Errorf("the image is %s", got)
	}
}
