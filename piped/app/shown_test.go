package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// listed returns an application as the list shows it.
func (c *client) listed(id string) *modelv1.Application {
	c.t.Helper()
	resp, err := c.api.ListApplications(c.ctx, &apiservice.ListApplicationsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	i := slices.IndexFunc(resp.Applications, func(a *modelv1.Application) bool { return a.Id == id })
	if i < 0 {
		c.t.Fatalf("application %s is not in the list", id)
	}
	return resp.Applications[i]
}

// scrapeProcess is scrape of an agent that runs as a process. It repeats a scrape that has left out what the
// store had no time for, which the agent logs.
func scrapeProcess(t *testing.T, p *agenttest.Agent) map[string]float64 {
	t.Helper()
	failed := func() int { return strings.Count(p.Log(), "cannot collect metrics") }
	for end := time.Now().Add(patience); ; {
		before := failed()
		got := scrape(t, "http://"+p.WebAddress+"/metrics")
		if failed() == before || time.Now().After(end) {
			return got
		}
	}
}

// gauged returns the labels of the agent's metrics of a name.
func gauged(t *testing.T, p *agenttest.Agent, name string) (labels []string) {
	t.Helper()
	for metric := range scrapeProcess(t, p) {
		if rest, ok := strings.CutPrefix(metric, name); ok {
			labels = append(labels, rest)
		}
	}
	return labels
}

// TestHoldIsShownEverywhere: while an application is held at the commit of a rollback, the
// list, the application, its drift, the metrics and the notifications say so; none of them
// does once a commit has ended it.
func TestHoldIsShownEverywhere(t *testing.T) {
	t.Parallel()
	cluster, h := clustertest.Shared(t), newHook(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), More: fmt.Sprintf(`  notifications:
    routes: [{receiver: hook, events: [APPLICATION_HELD, APPLICATION_RELEASED]}]
    receivers: [{name: hook, webhook: {url: %q, signatureValue: secret}}]
`, h.URL)})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	web := appID("web")
	first := repo.Push(t, "add web", webApp(ns, "v1", ""))
	agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	agent.mustEnd(web, repo.Push(t, "change web", webApp(ns, "v2", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	shown := func() map[string]*modelv1.ApplicationHold {
		t.Helper()
		var drift *controlv1.GetDriftReportResponse
		err := whenNotBusy(func() (err error) {
			drift, err = agent.control.GetDriftReport(agent.ctx, &controlv1.GetDriftReportRequest{ApplicationId: web, Refresh: true})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]*modelv1.ApplicationHold{"list": agent.listed(web).GetHold(), "get": agent.application(web).GetHold(), "drift": drift.GetReport().GetHold()}
	}
	const metric = "piped_application_held_seconds"

	back, err := agent.control.RollbackApplication(agent.ctx, &controlv1.RollbackApplicationRequest{ApplicationId: web, Commit: first, Reason: "the page is broken"})
	if err != nil {
		t.Fatal(err)
	}
	id := agent.answer(back.GetCommandId()).GetMetadata()["TriggeredDeploymentID"]
	agent.await(web, "has gone back", func(d *modelv1.Deployment) bool {
		return d.GetId() == id && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	for place, hold := range shown() {
		if hold.GetCommit() != first || hold.GetHeldBy() != "owner" || hold.GetSinceMs() == 0 || !strings.Contains(hold.GetReason(), "the page is broken") {
			t.Errorf("%s shows the hold %v", place, hold)
		}
	}
	if got, want := gauged(t, p, metric), fmt.Sprintf("{app=web,application_id=%s,commit=%s}", web, first[:7]); len(got) != 1 || got[0] != want {
		t.Errorf("%s is of %v, want %s", metric, got, want)
	}
	if event := <-h.arrived; event != "APPLICATION_HELD" {
		t.Errorf("the rollback was reported as %s", event)
	}

	agent.mustEnd(web, repo.Push(t, "fix web", webApp(ns, "v3", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	for place, hold := range shown() {
		if hold != nil {
			t.Errorf("after a new commit, %s shows the hold %v", place, hold)
		}
	}
	if got := gauged(t, p, metric); len(got) != 0 {
		t.Errorf("after a new commit, %s is of %v", metric, got)
	}
	if event := <-h.arrived; event != "APPLICATION_RELEASED" {
		t.Errorf("the new commit was reported as %s", event)
	}
}

// TestFailureAndApprovalAreShown: an application shows why its deployment failed as soon
// as the rollback begins, and whose approval the next one awaits. The status and the
// metrics show this too.
func TestFailureAndApprovalAreShown(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig()})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	bad := repo.Push(t, "a bad image", webApp(ns, "does-not-exist", ""))
	seen := agent.await(web, "is rolled back", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == bad && d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK
	})
	f := agent.application(web).GetLastFailure()
	if f.GetDeploymentId() != seen.GetId() || f.GetCommit() != bad || !strings.Contains(f.GetStatusReason(), "does-not-exist") {
		t.Errorf("when the rollback begins, the last failure is %v", f)
	}
	agent.mustEnd(web, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	if last := agent.listed(web).GetLastDeployment(); last.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_FAILURE || last.GetCommit() != bad {
		t.Errorf("the list shows the last deployment as %v", last)
	}

	files := webApp(ns, "v2", "")
	files["web/app.pipecd.yaml"] += "  pipeline:\n    stages: [{id: gate, name: WAIT_APPROVAL, with: {approvers: [jane]}}, {name: K8S_SYNC}]\n"
	gated := repo.Push(t, "ask jane", files)
	d := agent.await(web, "waits for people", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == gated && d.GetWait().GetApproval()
	})
	state, err := agent.control.GetStatus(agent.ctx, &controlv1.GetStatusRequest{})
	if err != nil || len(state.GetApprovals()) != 1 || state.GetApprovals()[0].GetDeploymentId() != d.GetId() {
		t.Fatalf("the status shows the approvals %v, %v", state.GetApprovals(), err)
	}
	for place, wait := range map[string]*modelv1.DeploymentWait{
		"deployment": d.GetWait(), "list": agent.listed(web).GetLastDeployment().GetWait(), "get": agent.application(web).GetLastDeployment().GetWait(), "status": state.GetApprovals()[0].GetWait(),
	} {
		if wait.GetWaitsFor() != "1 approval of jane" || wait.GetSinceMs() == 0 || wait.GetStageId() != "gate" {
			t.Errorf("%s shows the wait %v", place, wait)
		}
	}
	if got, want := gauged(t, p, "piped_application_approval_wait_seconds"), fmt.Sprintf("{app=web,application_id=%s}", web); len(got) != 1 || got[0] != want {
		t.Errorf("the metric is of %v, want %s", got, want)
	}
}
