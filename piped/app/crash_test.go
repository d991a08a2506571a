package app

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

	good := repo.Push(t, "slow to become ready", heldApp("web", webApp(ns, "v2", "")))
	agent.await(web, "rolls out", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == good && strings.Contains(agent.logs(d.GetId()), "applied Deployment")
	})
	restart(t, p)
	agent.letPodsBeReady(kube, ns, web, good)
	d := agent.mustEnd(web, good, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveEndedOnce(t, d)

	broken := webApp(ns, "does-not-exist", "") // replaces all old pods, so that the rollback needs new ones
	broken["web/app.yaml"] = strings.Replace(broken["web/app.yaml"], "  replicas: 2\n", "  replicas: 2\n  strategy: {rollingUpdate: {maxUnavailable: 100%}}\n", 1)
	bad := repo.Push(t, "never starts", broken)
	agent.await(web, "rolls back", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == bad && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK
	})
	restart(t, p)
	agent.letPodsBeReady(kube, ns, web, bad)
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

// heldApp returns the files of an application with pods that do not become ready before
// letPodsBeReady or letBeReady.
func heldApp(name string, files map[string]string) map[string]string {
	labels, file := "metadata: {labels: {app: "+name, name+"/app.yaml"
	held := strings.Replace(files[file], labels, labels+", "+clustertest.BehaviorLabel+": never-ready", 1)
	if held == files[file] {
		panic(file + " has no labels of pods: its pods would not be held")
	}
	files[file] = held
	return files
}

// letBeReady lets the held pods of a namespace become ready. A preview in the namespace of its
// application has a suffix to the values of labels, so that any value but "ready" is that of a held pod.
func letBeReady(t *testing.T, kube kubernetes.Interface, namespace string) {
	t.Helper()
	if _, err := clustertest.Behave(t.Context(), kube, namespace, clustertest.BehaviorLabel+","+clustertest.BehaviorLabel+"!=ready", "ready"); err != nil {
		t.Fatal(err)
	}
}

// letPodsBeReady lets held pods become ready until the deployment of a commit has ended.
func (c *client) letPodsBeReady(kube kubernetes.Interface, ns, app, commit string) {
	c.t.Helper()
	eventually(c.t, "the deployment of commit "+commit+" ends", func() bool {
		letBeReady(c.t, kube, ns)
		return slices.ContainsFunc(c.deployments(app), func(d *modelv1.Deployment) bool {
			return d.GetTrigger().GetCommit().GetHash() == commit && d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
		})
	})
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
