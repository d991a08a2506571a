package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestCommitBecomesDeployment follows commits of one application to their ends.
func TestCommitBecomesDeployment(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	image := func() string {
		t.Helper()
		d, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Status.AvailableReplicas != 2 || d.Status.UpdatedReplicas != 2 {
			t.Errorf("the rollout has not ended: %+v", d.Status)
		}
		return strings.TrimPrefix(d.Spec.Template.Spec.Containers[0].Image, "registry.example/web:")
	}

	first := repo.Push(t, "add web", webApp(ns, "v1", ""))
	d := agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if got := image(); got != "v1" {
		t.Errorf("live image %s, want v1", got)
	}
	var moves []string
	for _, m := range d.GetTransitions() {
		moves = append(moves, strings.TrimSpace(m.GetStageId()+" "+m.GetTo()))
	}
	want := []string{
		"DEPLOYMENT_PENDING", "DEPLOYMENT_PLANNED", "K8sSync STAGE_NOT_STARTED_YET", "DEPLOYMENT_RUNNING",
		"K8sSync STAGE_RUNNING", "K8sSync STAGE_SUCCESS", "DEPLOYMENT_SUCCESS",
	}
	if diff := cmp.Diff(want, moves); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
	for _, line := range []string{"2 objects: 2 created", "rollout complete"} {
		if log := agent.logs(d.GetId()); !strings.Contains(log, line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}

	second := repo.Push(t, "web v2", webApp(ns, "v2", ""))
	agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if got := image(); got != "v2" {
		t.Errorf("live image %s, want v2", got)
	}

	other := repo.Push(t, "nothing of web", map[string]string{"README.md": "changed"})
	agent.awaitEvaluated(web, other)
	if got := len(agent.deployments(web)); got != 2 {
		t.Errorf("%d deployments after a commit that does not touch the application, want 2", got)
	}

	command := agent.sync(web)
	if command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Fatalf("sync by hand: %v", command)
	}
	manual := agent.mustEnd(web, other, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if manual.GetId() != command.GetMetadata()["TriggeredDeploymentID"] || manual.GetTrigger().GetCommander() != "owner" {
		t.Errorf("sync by hand made deployment %s by %q, the command says %v", manual.GetId(), manual.GetTrigger().GetCommander(), command.GetMetadata())
	}
	if log := agent.logs(manual.GetId()); !strings.Contains(log, "2 unchanged") {
		t.Errorf("a sync without changes wrote something:\n%s", log)
	}
}

// TestFailedRolloutIsRolledBack commits an image that cannot be pulled together with a
// new object. The cluster must be as before the commit.
func TestFailedRolloutIsRolledBack(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	files := webApp(ns, "does-not-exist", "")
	files["web/extra.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n"
	d := agent.mustEnd(web, repo.Push(t, "a bad image", files), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	for _, want := range []string{"web", "does-not-exist", "rolled back to commit"} {
		if !strings.Contains(d.GetStatusReason(), want) {
			t.Errorf("the reason lacks %q: %s", want, d.GetStatusReason())
		}
	}
	live, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := live.Spec.Template.Spec.Containers[0].Image; got != "registry.example/web:v1" || live.Status.AvailableReplicas != 2 || live.Status.Replicas != 2 {
		t.Errorf("after the rollback: image %s, status %+v", got, live.Status)
	}
	if _, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), "extra", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object the failed deployment created is still there: %v", err)
	}
	if command := agent.sync(web); command.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("after a failure the application cannot be synced: %v", command)
	}
}

// TestEveryWorkloadIsWaitedFor deploys a Deployment, a StatefulSet and a DaemonSet.
func TestEveryWorkloadIsWaitedFor(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	files := webApp(ns, "v1", "")
	for _, kind := range []string{"StatefulSet", "DaemonSet"} {
		extra := "serviceName: web, replicas: 2, "
		if kind == "DaemonSet" {
			extra = ""
		}
		name := strings.ToLower(kind)
		files["web/"+name+".yaml"] = fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s}
spec: {%sselector: {matchLabels: {app: %s}}, template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: c, image: "registry.example/c:v1"}]}}}
`, kind, name, extra, name, name)
	}
	d := agent.mustEnd(appID("web"), repo.Push(t, "all kinds", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	log := agent.logs(d.GetId())
	for _, workload := range []string{"Deployment " + ns + "/web", "StatefulSet " + ns + "/statefulset", "DaemonSet " + ns + "/daemonset"} {
		if !strings.Contains(log, workload+": rollout complete") {
			t.Errorf("the log does not contain the end of %s:\n%s", workload, log)
		}
	}
}
