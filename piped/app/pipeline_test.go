package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// gatedApp returns the files of an application in the directory "web". Each of its
// deployments needs an approval, and then a script reports it.
func gatedApp(namespace, image, script string) map[string]string {
	files := webApp(namespace, image, "")
	files["web/app.pipecd.yaml"] += fmt.Sprintf(`  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: sync, name: K8S_SYNC}
      - {id: wait, name: WAIT, with: {duration: 1s}}
      - id: gate
        name: WAIT_APPROVAL
        with:
          approvers: [owner]
          skipOn: {commitMessagePrefixes: ["hotfix:"]}
      - id: tell
        name: SCRIPT_RUN
        with:
          run: %q
          onRollback: echo "took back $SR_TRIGGERED_COMMIT_HASH as $ROLE"
          env: {ROLE: teller}
`, script)
	return files
}

// stages returns the stages of a deployment, each with its status.
func stages(d *modelv1.Deployment) (out []string) {
	for _, s := range d.GetStages() {
		out = append(out, s.GetId()+" "+strings.TrimPrefix(s.GetStatus().String(), "STAGE_"))
	}
	return out
}

func mustHaveStages(t *testing.T, d *modelv1.Deployment, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, stages(d)); diff != "" {
		t.Errorf("stages of %q (-want +got):\n%s", d.GetTrigger().GetCommit().GetMessage(), diff)
	}
}

// awaitStage returns the deployment of a commit once the given stage runs.
func (c *client) awaitStage(app, commit, stage string) *modelv1.Deployment {
	c.t.Helper()
	return c.await(app, "runs stage "+stage+" of commit "+commit, func(d *modelv1.Deployment) bool {
		if d.GetTrigger().GetCommit().GetHash() != commit {
			return false
		}
		for _, s := range d.GetStages() {
			if s.GetId() == stage && s.GetStatus() == modelv1.StageStatus_STAGE_RUNNING {
				return true
			}
		}
		return false
	})
}

// approve approves the deployment's only stage that waits for an approval.
func (c *client) approve(d *modelv1.Deployment) {
	c.t.Helper()
	resp, err := c.control.ApproveStage(c.ctx, &controlv1.ApproveStageRequest{DeploymentId: d.GetId(), Reason: "checked"})
	if err != nil {
		c.t.Fatal(err)
	}
	if answer := c.answer(resp.GetCommandId()); answer.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		c.t.Fatalf("approval: %v", answer)
	}
}

// cancel cancels a deployment.
func (c *client) cancel(req *controlv1.CancelDeploymentRequest) {
	c.t.Helper()
	resp, err := c.control.CancelDeployment(c.ctx, req)
	if err != nil {
		c.t.Fatal(err)
	}
	if answer := c.answer(resp.GetCommandId()); answer.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		c.t.Fatalf("cancel: %v", answer)
	}
}

// liveImage returns the tag of the image that Deployment web runs.
func liveImage(t *testing.T, cluster *clustertest.Cluster, ns string) string {
	t.Helper()
	d, err := cluster.Client(t).AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(d.Spec.Template.Spec.Containers[0].Image, "registry.example/web:")
}

// TestPipelineRunsStageByStage: the first commit waits, is approved and reported. The
// script of the second fails, and everything is rolled back. The third does not wait for
// an approval.
func TestPipelineRunsStageByStage(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")

	first := repo.Push(t, "web v1", gatedApp(ns, "v1", `grep -q web:v1 app.yaml && echo "released $SR_TRIGGERED_COMMIT_HASH"`))
	agent.approve(agent.awaitStage(web, first, "gate"))
	d := agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "sync SUCCESS", "wait SUCCESS", "gate SUCCESS", "tell SUCCESS", "ScriptRunRollback-tell NOT_STARTED_YET")
	mustContain(t, d.GetSummary(), "Pipeline", "alwaysUsePipeline")
	mustContain(t, agent.logs(d.GetId()), "released "+first, "owner")

	second := repo.Push(t, "web v2", gatedApp(ns, "v2", "echo not telling; exit 7"))
	d = agent.awaitStage(web, second, "gate")
	if got := liveImage(t, cluster, ns); got != "v2" {
		t.Errorf("at the gate the live image is %s, want v2", got)
	}
	agent.approve(d)
	d = agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "sync SUCCESS", "wait SUCCESS", "gate SUCCESS", "tell FAILURE", "Rollback SUCCESS", "ScriptRunRollback-tell SUCCESS")
	mustContain(t, d.GetStatusReason(), "SCRIPT_RUN", "exited with code 7", "rolled back to commit "+first[:7])
	mustContain(t, agent.logs(d.GetId()), "not telling", "took back "+second+" as teller")
	if got := liveImage(t, cluster, ns); got != "v1" {
		t.Errorf("after the rollback the live image is %s, want v1", got)
	}
	mustHaveEndedOnce(t, d)

	third := repo.Push(t, "hotfix: web v3", gatedApp(ns, "v3", "true"))
	d = agent.mustEnd(web, third, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "sync SUCCESS", "wait SUCCESS", "gate SKIPPED", "tell SUCCESS", "Rollback NOT_STARTED_YET", "ScriptRunRollback-tell NOT_STARTED_YET")
	for _, s := range d.GetStages() {
		if s.GetId() == "gate" {
			mustContain(t, s.GetStatusReason(), "hotfix:")
		}
	}
}

// TestCancelAtTheGate cancels with a rollback and without one.
func TestCancelAtTheGate(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "hotfix: web v1", gatedApp(ns, "v1", "true")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	for _, c := range []struct {
		image string
		req   *controlv1.CancelDeploymentRequest
		live  string
		want  []string // stages
	}{
		{"v2", &controlv1.CancelDeploymentRequest{}, "v1",
			[]string{"sync SUCCESS", "wait SUCCESS", "gate CANCELLED", "tell NOT_STARTED_YET", "Rollback SUCCESS", "ScriptRunRollback-tell SKIPPED"}},
		{"v3", &controlv1.CancelDeploymentRequest{ForceNoRollback: true}, "v3",
			[]string{"sync SUCCESS", "wait SUCCESS", "gate CANCELLED", "tell NOT_STARTED_YET", "Rollback NOT_STARTED_YET", "ScriptRunRollback-tell NOT_STARTED_YET"}},
	} {
		commit := repo.Push(t, "web "+c.image, gatedApp(ns, c.image, "true"))
		c.req.DeploymentId = agent.awaitStage(web, commit, "gate").GetId()
		agent.cancel(c.req)
		d := agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED)
		mustHaveStages(t, d, c.want...)
		mustContain(t, d.GetStatusReason(), "Cancelled by owner")
		if got := liveImage(t, cluster, ns); got != c.live {
			t.Errorf("after the cancel of %s the live image is %s, want %s", c.image, got, c.live)
		}
	}
}

// TestRunningScriptSurvivesAReload: while a script runs, a reload changes everything
// about its deployment that it can change. The script must run to its end, once.
func TestRunningScriptSurvivesAReload(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo, other := newRepo(t), newRepo(t)
	dir, shared := t.TempDir(), t.TempDir()
	started, goOn := filepath.Join(shared, "started"), filepath.Join(shared, "go-on")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	data, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, kubeconfig, string(data))
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": kubeconfig}, more: allowScripts(shared)}
	agent := runReloading(t, s, 10*time.Millisecond)
	web := appID("web")
	script := fmt.Sprintf("echo run >> %s; while ! [ -e %s ]; do sleep 0.05; done; echo done", started, goOn)
	commit := repo.Push(t, "hotfix: web v1", gatedApp(ns, "v1", script))
	agent.awaitStage(web, commit, "tell")
	eventually(t, "the script runs", func() bool { // the stage runs before it
		_, err := os.Stat(started)
		return err == nil
	})

	replaceFile(t, kubeconfig, string(data)+"\n# rotated\n")
	s.repositories = map[string]string{"others": other.Dir}
	s.more = "  limits: {deployments: 1}\n"
	agent.write(s, inEffect, "platformProviders", "repositories", "limits")
	s.providers = nil
	agent.write(s, inEffect, "platformProviders")
	replaceFile(t, goOn, "")
	d := agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveEndedOnce(t, d)
	if runs, err := os.ReadFile(started); err != nil || string(runs) != "run\n" {
		t.Errorf("the script ran %q: %v", runs, err)
	}
}
