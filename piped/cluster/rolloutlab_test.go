package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// rolloutLab applies single workloads to a real cluster and waits for their
// rollouts.
type rolloutLab struct {
	*Cluster
	ns       string
	app      string // the ID of its application, of no other lab
	observer *Observer
	policy   rollout.Policy
	records  *records

	mu    sync.Mutex
	lines []string
}

func newRolloutLab(t *testing.T) *rolloutLab {
	t.Helper()
	return newRolloutLabIn(t, clustertest.Shared(t))
}

// newRolloutLabIn is newRolloutLab in a cluster of the caller's choice.
func newRolloutLabIn(t *testing.T, cluster *clustertest.Cluster) *rolloutLab {
	t.Helper()
	c, err := NewCluster(ClusterConfig{Name: "test", KubeConfigPath: cluster.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	controller := NewController(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("controller: %v", err)
		}
		c.Close()
	})
	ns := cluster.Namespace(t)
	return &rolloutLab{
		Cluster: c, ns: ns, app: "app-" + ns, observer: NewObserver(c, controller),
		records: &records{stored: map[string]deploy.Rollout{}, marks: map[string]int{}},
		policy:  rollout.Policy{PodsAfter: 300 * time.Millisecond, FailFastAfter: 3 * time.Second, FailureGrace: 2 * time.Second, WatchdogGrace: 5 * time.Second},
	}
}

// records is a store of rollout records with compare and swap.
type records struct {
	mu     sync.Mutex
	stored map[string]deploy.Rollout
	marks  map[string]int
	mirror func(deploy.Rollout) // if set, is given what is stored
}

func (r *records) save(_ context.Context, rec deploy.Rollout) (deploy.Rollout, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, ok := r.stored[rec.ID]
	if ok && (stored.Version != rec.Version || stored.Phase.Terminal()) {
		return stored, deploy.Errorf(deploy.Conflict, "rollout %s was written meanwhile", rec.ID)
	}
	if rec.Phase.Terminal() {
		r.marks[rec.ID]++
	}
	if r.mirror != nil {
		r.mirror(rec)
	}
	rec.Version++
	r.stored[rec.ID] = rec
	return rec, nil
}

func (r *records) get(id string) deploy.Rollout {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored[id]
}

// apply applies one workload as a stage does and returns its record. Each call
// is a stage of its own.
func (l *rolloutLab) apply(t *testing.T, stage, text string) deploy.Rollout {
	t.Helper()
	ctx := t.Context()
	obj := parse(t, "web.yaml", text)[0].Unstructured
	obj.SetNamespace(l.ns)
	obj.SetLabels(map[string]string{manifest.LabelApplication: l.app})
	client := l.Dynamic().Resource(workloadResources[obj.GetKind()]).Namespace(l.ns)

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
	rec, err = l.records.save(ctx, rollout.Applied(rec, l.workload(t, result), time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (l *rolloutLab) workload(t *testing.T, u *unstructured.Unstructured) rollout.Workload {
	t.Helper()
	w, err := rollout.WorkloadFrom(u)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wait waits for the record's end. during, if not nil, is called once, when the
// first progress line has come.
func (l *rolloutLab) wait(t *testing.T, rec deploy.Rollout, during func()) deploy.Rollout {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ended, err := rollout.Wait(ctx, rollout.Request{
		Records: []deploy.Rollout{rec}, Observer: l.observer, Policy: l.policy, Save: l.records.save,
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
		t.Fatalf("wait: %v\n%s", err, l.said())
	}
	if n := l.records.marks[rec.ID]; n != 1 {
		t.Errorf("%d terminal marks, want 1", n)
	}
	return ended[0]
}

// said returns the progress lines.
func (l *rolloutLab) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out string
	for _, line := range l.lines {
		out += "  " + line + "\n"
	}
	return out
}

// patch changes the workload as somebody else.
func (l *rolloutLab) patch(t *testing.T, kind, manager, body string, subresources ...string) {
	t.Helper()
	_, err := l.Dynamic().Resource(workloadResources[kind]).Namespace(l.ns).Patch(context.Background(), "web",
		types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: manager}, subresources...)
	if err != nil {
		t.Errorf("patch: %v", err)
	}
}

// sets counts the ReplicaSets in the namespace.
func (l *rolloutLab) sets(t *testing.T) int {
	t.Helper()
	list, err := l.Typed().AppsV1().ReplicaSets(l.ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// workloadText writes a manifest: fields of spec are YAML flow entries, such as
// "minReadySeconds: 2, paused: true".
func workloadText(kind, image, spec string) string {
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
