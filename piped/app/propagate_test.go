package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/manifest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// configEnv is an application with one Deployment that mounts its ConfigMap and another
// that reads it through its environment. A proxy records the agent's writes.
type configEnv struct {
	t          *testing.T
	repo       *gittest.Repo
	kube       kubernetes.Interface
	kubeconfig string // of the proxy
	ns, app    string
	delay      time.Duration // of the nudge

	mu       sync.Mutex
	notified map[string][]string // values of the annotation that were written, by pod
	patches  []string            // of pods and workloads, including dry runs
	written  func()              // called once, before the agent gets the response to the write of the ConfigMap
}

func newConfigEnv(t *testing.T, delay time.Duration) *configEnv {
	t.Helper()
	cluster := clustertest.Shared(t)
	w := &configEnv{t: t, repo: newRepo(t), kube: cluster.Client(t), ns: cluster.Namespace(t), delay: delay, notified: map[string][]string{}}
	w.app = appID(w.ns) // unique among the agents of all tests
	proxy, err := agenttest.ServeAPIAnswers(cluster.Kubeconfig(), w.see, w.answered)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.kubeconfig, err = proxy.Kubeconfig(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return w
}

// podOrWorkload matches paths of objects that the agent must not write without a reason.
var podOrWorkload = regexp.MustCompile(`/(pods|replicasets|deployments)/([^/]+)`)

// see records the writes to pods and workloads.
func (w *configEnv) see(r *http.Request) {
	target := podOrWorkload.FindStringSubmatch(r.URL.Path)
	if r.Method != http.MethodPatch || target == nil {
		return
	}
	kind, name := target[1], target[2]
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var object metav1.PartialObjectMetadata
	if err == nil && kind == "pods" {
		err = json.Unmarshal(body, &object)
	}
	if err != nil {
		w.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patches = append(w.patches, r.URL.RequestURI())
	if kind == "pods" {
		w.notified[name] = append(w.notified[name], object.Annotations[manifest.AnnotationConfigSync])
	}
}

// answered calls written when the ConfigMap has been written.
func (w *configEnv) answered(resp *http.Response) {
	r := resp.Request
	if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") || path.Base(path.Dir(r.URL.Path)) != "configmaps" {
		return
	}
	w.mu.Lock()
	written := w.written
	w.written = nil
	w.mu.Unlock()
	if written != nil {
		written()
	}
}

// taken returns the writes to pods and workloads since the last call, and the values with
// which each pod was notified.
func (w *configEnv) taken() (patches []string, notified map[string][]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	patches, notified = w.patches, w.notified
	w.patches, w.notified = nil, map[string][]string{}
	return patches, notified
}

// push commits the application with the given content of its ConfigMap.
func (w *configEnv) push(content string) (commit string) {
	w.t.Helper()
	return w.repo.Push(w.t, "greet with "+content, map[string]string{
		w.ns + "/app.pipecd.yaml": fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: web
  input: {namespace: %s}
  configPropagation: {nudge: {delay: %s, repeatAfter: 1s}}
`, w.ns, w.delay),
		w.ns + "/app.yaml": fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: files}
data: {greeting: %s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mounts}
spec:
  replicas: 2
  selector: {matchLabels: {app: mounts}}
  template:
    metadata: {labels: {app: mounts}}
    spec:
      containers: [{name: web, image: "registry.example/web:v1", volumeMounts: [{name: files, mountPath: /files}]}]
      volumes: [{name: files, configMap: {name: files}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: reads}
spec:
  replicas: 1
  selector: {matchLabels: {app: reads}}
  template:
    metadata: {labels: {app: reads}}
    spec:
      containers: [{name: web, image: "registry.example/web:v1", envFrom: [{configMapRef: {name: files}}]}]
`, content),
	})
}

// pods returns the value of the annotation on the running pods of a Deployment, by pod
// name.
func (w *configEnv) pods(deployment string) map[string]string {
	w.t.Helper()
	list, err := w.kube.CoreV1().Pods(w.ns).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			out[pod.Name] = pod.Annotations[manifest.AnnotationConfigSync]
		}
	}
	return out
}

// wantReached waits until the older pods that mount the ConfigMap were notified twice of
// the change. It fails if anything else was written to them, if the log lacks the
// notification, or if the other Deployment has not rolled out.
func (w *configEnv) wantReached(agent *client, d *modelv1.Deployment, before map[string]string) {
	w.t.Helper()
	eventually(w.t, "the pods are notified for the second time", func() bool {
		for _, value := range w.pods("mounts") {
			if !strings.HasSuffix(value, ".2") {
				return false
			}
		}
		return true
	})
	w.wantSynced(agent)
	_, notified := w.taken()
	want, log, after := map[string][]string{}, agent.logs(d.GetId()), w.pods("mounts")
	for pod := range before {
		value := strings.TrimSuffix(after[pod], ".2")
		want[pod] = []string{value, value + ".2"}
		if value == "" || value == strings.TrimSuffix(before[pod], ".2") {
			w.t.Errorf("pod %s was notified with %q, and before that with %q", pod, after[pod], before[pod])
		}
		mustContain(w.t, log, pod)
	}
	if diff := cmp.Diff(want, notified); diff != "" || len(after) != len(before) {
		w.t.Errorf("notifications of pods (-want +got):\n%s\npods that mount the ConfigMap: %v, before: %v", diff, after, before)
	}
	mustContain(w.t, log, fmt.Sprintf("ConfigMap %[1]s/files has changed: all 2 running pods of Deployment %[1]s/mounts that mount it were nudged: ", w.ns))
	resp, err := agent.control.ListRollouts(agent.ctx, &controlv1.ListRolloutsRequest{DeploymentId: d.GetId()})
	if err != nil {
		w.t.Fatal(err)
	}
	rollouts := map[string]modelv1.RolloutOutcome{}
	for _, r := range resp.GetRollouts() {
		rollouts[r.GetWorkload().GetName()] = r.GetOutcome()
	}
	ends := map[string]modelv1.RolloutOutcome{"mounts": modelv1.RolloutOutcome_ROLLOUT_OUTCOME_NO_ROLLOUT, "reads": modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE}
	if diff := cmp.Diff(ends, rollouts); diff != "" || len(resp.GetRollouts()) != 2 {
		w.t.Errorf("%d rollouts (-want +got):\n%s", len(resp.GetRollouts()), diff)
	}
	sets, err := w.kube.AppsV1().ReplicaSets(w.ns).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	of := map[string]int{}
	for _, set := range sets.Items {
		of[set.Labels["app"]]++
	}
	if diff := cmp.Diff(map[string]int{"mounts": 1, "reads": 2}, of); diff != "" {
		w.t.Errorf("ReplicaSets (-want +got):\n%s", diff)
	}
}

// wantSynced waits until the agent reports the application as synced, and fails if it has
// ever reported drift.
func (w *configEnv) wantSynced(agent *client) {
	w.t.Helper()
	agent.awaitSyncState(w.app, synced)
	eventually(w.t, "the application is compared and in sync", func() bool {
		resp, err := agent.control.GetDriftReport(agent.ctx, &controlv1.GetDriftReportRequest{ApplicationId: w.app, Refresh: true})
		return err == nil && resp.GetReport().GetStatus() == synced && resp.GetReport().GetComparedObjects() == 3
	})
	resp, err := agent.control.ListDriftReports(agent.ctx, &controlv1.ListDriftReportsRequest{})
	if err != nil || len(resp.GetReports()) > 0 {
		w.t.Errorf("periods of drift: %v, %v", resp.GetReports(), err)
	}
}

// TestChangedConfigurationReachesPods: in one sync, pods that mount a changed ConfigMap
// must be notified, and pods that read it through their environment must be replaced. A
// restarted agent and a sync without changes must not write to either.
func TestChangedConfigurationReachesPods(t *testing.T) {
	t.Parallel()
	w := newConfigEnv(t, 100*time.Millisecond)
	s := settings{dataDir: t.TempDir(), pipedID: w.ns, remote: w.repo.Dir, kubeconfig: w.kubeconfig}
	agent, stop := runAgentUntil(t, s)
	agent.mustEnd(w.app, w.push("hello"), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.wantSynced(agent)
	before, replaced := w.pods("mounts"), w.pods("reads")
	if _, notified := w.taken(); len(notified) > 0 || len(before) != 2 {
		t.Fatalf("the first deployment has %d pods and notified %v", len(before), notified)
	}

	d := agent.mustEnd(w.app, w.push("good-evening"), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.wantReached(agent, d, before)
	for pod, value := range w.pods("reads") {
		if _, old := replaced[pod]; old || value != "" {
			t.Errorf("pod %s of the other Deployment existed before: %t; it was notified with %q", pod, old, value)
		}
	}

	stop()
	w.taken()
	agent = runAgent(t, s)
	w.wantSynced(agent)
	if patches, _ := w.taken(); len(patches) > 0 {
		t.Errorf("a restarted agent writes %q", patches)
	}
	agent.sync(w.app)
	agent.await(w.app, "was asked for and succeeds", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommander() != "" && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	w.wantSynced(agent)
	if patches, _ := w.taken(); len(patches) > 0 {
		t.Errorf("a sync without changes writes %q", patches)
	}
}

// TestKilledBeforePodsAreNotified kills the agent with SIGKILL when it has written the
// ConfigMap but notified no pod: before the write is recorded, and during the delay of
// the nudge. Each pod must still be notified exactly once with each value.
func TestKilledBeforePodsAreNotified(t *testing.T) {
	t.Parallel()
	binary := buildAgent(t)
	for _, c := range []struct {
		name  string
		delay time.Duration // of the nudge
		kill  func(*configEnv, *client, *agenttest.Agent) (commit string)
	}{
		{"the write is not answered", 2 * time.Second, (*configEnv).killUnanswered},
		{"the nudge waits", 30 * time.Second, (*configEnv).killWaiting}, // the agent has restarted before the delay ends
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newConfigEnv(t, c.delay)
			p := startProcess(t, agenttest.Options{Binary: binary, Remote: w.repo.Dir, Kubeconfig: w.kubeconfig})
			agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
			agent.mustEnd(w.app, w.push("hello"), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			before := w.pods("mounts")

			commit := c.kill(w, agent, p)
			if _, notified := w.taken(); len(notified) > 0 || len(before) != 2 {
				t.Fatalf("of %d pods, some were notified before the agent was killed: %v", len(before), notified)
			}
			live, err := w.kube.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "files", metav1.GetOptions{})
			if err != nil || live.Data["greeting"] != "good-evening" {
				t.Fatalf("the ConfigMap was not written: %v, %v", live.Data, err)
			}
			if err := p.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := agent.mustEnd(w.app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			mustHaveEndedOnce(t, d)
			w.wantReached(agent, d, before)
		})
	}
}

// killUnanswered kills the agent before it gets the response to the write.
func (w *configEnv) killUnanswered(_ *client, p *agenttest.Agent) (commit string) {
	w.t.Helper()
	written, killed := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(killed) })
	w.t.Cleanup(release) // before the proxy closes
	w.mu.Lock()
	w.written = func() { close(written); <-killed }
	w.mu.Unlock()
	commit = w.push("good-evening")
	select {
	case <-written:
	case <-time.After(patience):
		w.t.Fatal("the ConfigMap was not written")
	}
	p.Kill()
	release()
	return commit
}

// killWaiting kills the agent when it has stored the pending notifications, before the
// delay of the nudge is over.
func (w *configEnv) killWaiting(agent *client, p *agenttest.Agent) (commit string) {
	w.t.Helper()
	commit = w.push("good-evening")
	agent.await(w.app, "has applied its objects", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == commit && strings.Contains(agent.logs(d.GetId()), "Deployment "+w.ns+"/mounts: nothing to roll out")
	})
	p.Kill()
	return commit
}
