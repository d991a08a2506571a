package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestTwoStoresOneCluster: an agent with the same piped ID but another store does not
// deploy to a cluster that is already managed, and reports by whom. It continues when the
// other agent has stopped. An agent with the same store continues at once.
func TestTwoStoresOneCluster(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	head := repo.Push(t, "begin", simple("web", ns, "hello"))
	s := settings{dataDir: t.TempDir(), pipedID: ns, remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), leaseEvery: time.Second}
	first, stop := runAgentUntil(t, s)
	first.mustEnd(appID("web"), head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	stop()
	first, stop = runAgentUntil(t, s)
	head = repo.Push(t, "change", simple("web", ns, "hello again"))
	first.mustEnd(appID("web"), head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s.dataDir = t.TempDir()
	second := runAgent(t, s)
	// The trigger holds the application, or the planner its first deployment, depending
	// on which reads the Lease first.
	reason := func() string {
		why := second.application(appID("web")).GetNotice()
		for _, d := range second.deployments(appID("web")) {
			why += d.GetStatusReason()
		}
		return why
	}
	for end := time.Now().Add(patience); time.Now().Before(end) && !strings.Contains(reason(), "is managed by"); {
		time.Sleep(20 * time.Millisecond)
	}
	mustContain(t, reason(), "is managed by another agent with piped ID \""+ns+"\"", "on host "+host, "with store ")
	status, err := second.control.GetStatus(second.ctx, &controlv1.GetStatusRequest{})
	if err != nil || !strings.Contains(status.GetClusters()[0].GetError(), "is managed by another agent") {
		t.Errorf("the status of the cluster is %v, %v", status.GetClusters(), err)
	}
	stop()
	second.mustEnd(appID("web"), head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// TestRunningStageWaitsForTheLease: when another store's agent has taken over the
// cluster, a running deployment changes nothing there, runs no script, and reports the
// holder. It continues when this store has the Lease again.
func TestRunningStageWaitsForTheLease(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	ns, repo := shared.Namespace(t), newRepo(t)
	leases := shared.Client(t).CoordinationV1().Leases(cluster.LeaseNamespace)
	holder := func(change func(*coordinationv1.Lease)) {
		t.Helper()
		err := retry.RetryOnConflict(wait.Backoff{Steps: 1000, Duration: 10 * time.Millisecond}, func() error {
			lease, err := leases.Get(t.Context(), cluster.LeaseName(ns), metav1.GetOptions{})
			if err == nil {
				change(lease)
				_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mark := filepath.Join(t.TempDir(), "ran")
	files := simple("web", ns, "hello")
	files["web/app.pipecd.yaml"] += fmt.Sprintf(`  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: gate, name: WAIT_APPROVAL}
      - {id: script, name: SCRIPT_RUN, with: {run: "touch %s"}}
      - {id: second, name: WAIT_APPROVAL}
      - {id: sync, name: K8S_SYNC}
`, mark)
	head := repo.Push(t, "begin", files)
	agent := runAgent(t, settings{
		dataDir: t.TempDir(), pipedID: ns, remote: repo.Dir, kubeconfig: shared.Kubeconfig(), leaseEvery: 100 * time.Millisecond,
		more: allowScripts(filepath.Dir(mark)),
	})
	taken := func() {
		t.Helper()
		holder(func(l *coordinationv1.Lease) {
			theirs, far := "their-store", metav1.NewMicroTime(time.Now().Add(time.Hour))
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Annotations = &theirs, &far, map[string]string{"pipecd.dev/host": "node-7"}
		})
		agent.awaitHold()
	}
	given := func() {
		t.Helper()
		holder(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new(string) })
	}

	d := agent.awaitStage(appID("web"), head, "gate")
	taken()
	agent.approve(d)
	agent.awaitLog(d.GetId(), "script", "Held: cluster \"local\" is managed by another agent", "host node-7 with store their-store")
	if _, err := os.Stat(mark); err == nil {
		t.Error("the script ran while another agent managed the cluster")
	}
	given()
	agent.awaitStage(appID("web"), head, "second")
	taken()
	agent.approve(d)
	agent.awaitLog(d.GetId(), "sync", "Held: ")
	if _, err := shared.Client(t).CoreV1().ConfigMaps(ns).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap was written while another agent managed the cluster: %v", err)
	}
	given()
	agent.mustEnd(appID("web"), head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
}

// awaitHold waits until the agent knows that another one manages its cluster.
func (c *client) awaitHold() {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		status, err := c.control.GetStatus(c.ctx, &controlv1.GetStatusRequest{})
		if err == nil && strings.Contains(status.GetClusters()[0].GetError(), "is managed by another agent") {
			return
		}
	}
	c.t.Fatal("the agent does not know that another one manages the cluster")
}

// awaitLog waits until the log of a stage has texts.
func (c *client) awaitLog(deployment, stage string, texts ...string) {
	c.t.Helper()
	log := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		log = ""
		for line := range strings.Lines(c.logs(deployment)) {
			if strings.HasPrefix(line, stage+" ") {
				log += line
			}
		}
		missing := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(log, text) })
		if len(missing) == 0 {
			return
		}
	}
	c.t.Fatalf("the log of stage %s does not say %q:\n%s\nthe deployment: %v", stage, texts, log, stages(c.get(deployment)))
}
