package app

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/kubernetes/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestTwoStoresOneCluster: an agent that has another store and the same piped ID holds the
// applications of a cluster that is managed already, and says by whom. It goes on when the
// other agent has stopped. The same store continues at once.
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
	// The trigger holds the application, or the planner its first deployment: whichever
	// has heard of the Lease first.
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
