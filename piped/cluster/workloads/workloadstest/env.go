// Package workloadstest applies single workloads to a real cluster and waits for their
// rollouts, for tests of package workloads and of what stands on it. It contains no test.
package workloadstest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Env is a namespace of the shared cluster in which workloads are applied as stages do.
type Env struct {
	*cluster.Cluster
	Namespace string
	App       string // the ID of its application, unique per Env
	Observer  *workloads.Observer
	Policy    rollout.Policy
	Records   *Records

	mu    sync.Mutex
	lines []string
}

// New returns an Env in the shared cluster, with an Observer whose caches run until the
// test ends.
func New(t *testing.T) *Env {
	t.Helper()
	return NewIn(t, clustertest.Shared(t))
}

// NewIn is New in a given cluster.
func NewIn(t *testing.T, control *clustertest.Cluster) *Env {
	t.Helper()
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: control.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	controller := watch.New(c)
	clustertest.Run(t, controller.Run)
	ns := control.Namespace(t)
	return &Env{
		Cluster: c, Namespace: ns, App: "app-" + ns, Observer: workloads.NewObserver(c, controller),
		Records: &Records{stored: map[string]deploy.Rollout{}, Marks: map[string]int{}},
		Policy:  rollout.Policy{PodsAfter: 300 * time.Millisecond, FailFastAfter: 3 * time.Second, FailureGrace: 2 * time.Second, WatchdogGrace: 5 * time.Second},
	}
}

// Records is an in-memory store of rollout records with compare-and-swap.
type Records struct {
	mu     sync.Mutex
	stored map[string]deploy.Rollout
	Marks  map[string]int
	Mirror func(deploy.Rollout) // if set, is called with each record that is stored
}

// Save stores a record, as rollout.Request.Save.
func (r *Records) Save(_ context.Context, rec deploy.Rollout) (deploy.Rollout, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, ok := r.stored[rec.ID]
	if ok && (stored.Version != rec.Version || stored.Phase.Terminal()) {
		return stored, deploy.Errorf(deploy.Conflict, "rollout %s was written meanwhile", rec.ID)
	}
	if rec.Phase.Terminal() {
		r.Marks[rec.ID]++
	}
	if r.Mirror != nil {
		r.Mirror(rec)
	}
	rec.Version++
	r.stored[rec.ID] = rec
	return rec, nil
}

// Get returns a stored record.
func (r *Records) Get(id string) deploy.Rollout {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored[id]
}

// Apply applies one workload as a stage does and returns its record. Each call
// is a stage of its own.
func (l *Env) Apply(t *testing.T, stage, text string) deploy.Rollout {
	t.Helper()
	ctx := t.Context()
	objects, err := manifest.Parse("web.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := objects[0].Unstructured
	obj.SetNamespace(l.Namespace)
	obj.SetLabels(map[string]string{manifest.LabelApplication: l.App})
	client := l.Dynamic().Resource(workloads.Resource(obj.GetKind())).Namespace(l.Namespace)

	ref := manifest.Ref(obj)
	rec := deploy.Rollout{ID: deploy.RolloutID("d", stage, l.Name(), ref), DeploymentID: "d", StageID: stage, Cluster: l.Name(), Workload: ref}
	var before *rollout.Workload
	switch live, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{}); {
	case err == nil:
		w := l.workload(t, live)
		before = &w
	case !apierrors.IsNotFound(err):
		t.Fatal(err)
	}
	rec = rollout.Intended(rec, before, "")
	result, err := client.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "piped", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	rec, err = l.Records.Save(ctx, rollout.Applied(rec, l.workload(t, result), time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (l *Env) workload(t *testing.T, u *unstructured.Unstructured) rollout.Workload {
	t.Helper()
	w, err := rollout.WorkloadFrom(u)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Wait waits for the record's end. during, if not nil, is called once, when the
// first progress line has come.
func (l *Env) Wait(t *testing.T, rec deploy.Rollout, during func()) deploy.Rollout {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	ended, err := rollout.Wait(ctx, rollout.Request{
		Records: []deploy.Rollout{rec}, Observer: l.Observer, Policy: l.Policy, Save: l.Records.Save,
		Progress: func(line string) {
			l.mu.Lock()
			l.lines = append(l.lines, line)
			l.mu.Unlock()
			if during != nil {
				run := during
				during = nil
				run()
			}
		},
	})
	if err != nil {
		t.Fatalf("wait: %v\n%s", err, l.Progress())
	}
	if n := l.Records.Marks[rec.ID]; n != 1 {
		t.Errorf("%d terminal marks, want 1", n)
	}
	return ended[0]
}

// Progress returns the progress lines.
func (l *Env) Progress() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out string
	for _, line := range l.lines {
		out += "  " + line + "\n"
	}
	return out
}

// Patch changes the workload by another field manager.
func (l *Env) Patch(t *testing.T, kind, manager, body string, subresources ...string) {
	t.Helper()
	_, err := l.Dynamic().Resource(workloads.Resource(kind)).Namespace(l.Namespace).Patch(context.Background(), "web",
		types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: manager}, subresources...)
	if err != nil {
		t.Errorf("patch: %v", err)
	}
}

// ReplicaSets counts the ReplicaSets in the namespace.
func (l *Env) ReplicaSets(t *testing.T) int {
	t.Helper()
	list, err := l.Typed().AppsV1().ReplicaSets(l.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// Text returns the manifest of a workload. The fields of spec are YAML flow entries, such
// as "minReadySeconds: 2, paused: true".
func Text(kind, image, spec string) string {
	if spec != "" {
		spec += ", "
	}
	service := ""
	if kind == rollout.KindStatefulSet {
		service = "serviceName: web, "
	}
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: %s, metadata: {name: web}, spec: {%s%sselector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "%s"}]}}}}`,
		kind, service, spec, image)
}

// SlowText is Text for pods that become ready two seconds after they started.
func SlowText(kind, image, spec string) string {
	return strings.Replace(Text(kind, image, spec), "labels: {app: web}}, spec", "labels: {app: web}, annotations: {devcluster.piped.dev/ready-delay: 2s}}, spec", 1)
}

// WantParts checks that the parts of a rollout of one pod were measured, and add up to a slow pod.
func WantParts(t *testing.T, rec deploy.Rollout) {
	t.Helper()
	p := rec.Parts
	if !p.Schedule.Measured || !p.Pull.Measured || !p.Ready.Measured {
		t.Fatalf("%s: not measured: %+v", rec.Workload, p)
	}
	const grain = time.Second // the resolution of times in the cluster
	begun := rec.AppliedAt
	if rec.ServerAppliedAt.Before(begun) { // the answer to the apply may have come late
		begun = rec.ServerAppliedAt
	}
	sum, took := p.Schedule.Time+p.Pull.Time+p.Ready.Time, rec.CompletedAt.Sub(begun)
	if p.Ready.Time < 2*time.Second-grain || sum < 2*time.Second-grain || sum > took+2*grain {
		t.Errorf("%s: %s to schedule, %s to pull and %s to become ready in a rollout of %s", rec.Workload, p.Schedule.Time, p.Pull.Time, p.Ready.Time, took)
	}
}

// DeleteWeb deletes the Deployment web.
func (l *Env) DeleteWeb(t *testing.T) {
	if err := l.Typed().AppsV1().Deployments(l.Namespace).Delete(context.Background(), "web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// RestartWeb restarts the Deployment web as kubectl rollout restart does.
func (l *Env) RestartWeb(t *testing.T) {
	l.Patch(t, rollout.KindDeployment, "kubectl-rollout",
		`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`)
}
