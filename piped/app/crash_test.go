package app

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// buildAgent returns the path of the agent's binary: $PIPED_BINARY, which the Makefile
// has built once for all tests, or one that it builds for this test.
func buildAgent(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PIPED_BINARY"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "agent")
	cmd := exec.Command("go", "build", "-o", path, module+"piped/cmd/piped")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // a program that is only driven needs no race detector
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	return path
}

// startProcess runs the agent as a separate process. It builds the binary and creates a
// directory, unless o names them.
func startProcess(t *testing.T, o agenttest.Options) *agenttest.Agent {
	t.Helper()
	o.Interval = cmp.Or(o.Interval, 200*time.Millisecond)
	if o.Binary == "" {
		o.Binary = buildAgent(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p, err := agenttest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("the agent: %v", err)
		}
	})
	return p
}

func restart(t *testing.T, p *agenttest.Agent) {
	t.Helper()
	p.Kill()
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestKilledInTheMiddleOfARollout kills the agent with SIGKILL during a rollout, once
// while pods become ready and once during the rollback. Each deployment must end once,
// with the right status.
func TestKilledInTheMiddleOfARollout(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig()})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	web := appID("web")
	agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	slow := `devcluster.piped.dev/ready-delay: "2s"`
	good := repo.Push(t, "slow to become ready", webApp(ns, "v2", slow))
	agent.await(web, "rolls out", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == good && strings.Contains(agent.logs(d.GetId()), "applied Deployment")
	})
	restart(t, p)
	d := agent.mustEnd(web, good, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveEndedOnce(t, d)

	broken := webApp(ns, "does-not-exist", slow) // replaces all old pods, so that the rollback takes as long as they do
	broken["web/app.yaml"] = strings.Replace(broken["web/app.yaml"], "  replicas: 2\n", "  replicas: 2\n  strategy: {rollingUpdate: {maxUnavailable: 100%}}\n", 1)
	bad := repo.Push(t, "never starts", broken)
	agent.await(web, "rolls back", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == bad && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK
	})
	restart(t, p)
	d = agent.mustEnd(web, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveEndedOnce(t, d)
	mustContain(t, d.GetStatusReason(), "rolled back to commit "+good[:7])

	live, err := kube.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := live.Spec.Template.Spec.Containers[0].Image; got != "registry.example/web:v2" || live.Status.AvailableReplicas != 2 {
		t.Errorf("at the end: image %s, status %+v", got, live.Status)
	}
	if n := len(agent.deployments(web)); n != 3 {
		t.Errorf("%d deployments, want 3: none may be made twice", n)
	}
}

// mustHaveEndedOnce checks that no state was entered twice.
func mustHaveEndedOnce(t *testing.T, d *modelv1.Deployment) {
	t.Helper()
	entered := map[string]int{}
	for _, m := range d.GetTransitions() {
		entered[fmt.Sprintf("%s %s", m.GetStageId(), m.GetTo())]++
	}
	for state, n := range entered {
		if n != 1 {
			t.Errorf("deployment %s entered %q %d times", d.GetId(), state, n)
		}
	}
}
