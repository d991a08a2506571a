package observe

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// watchAll records the rollouts and scalings of all workloads of the namespace, as an agent
// that was started does, until stop is called. It returns once changes are handled.
func (l *env) watchAll(t *testing.T) (stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	controller := watch.New(l.Cluster)
	observer := workloads.NewObserverOf(l.Cluster, controller, &workloads.Selection{Namespaces: []string{l.Namespace}})
	externals := NewExternalRollouts(ExternalConfig{Observer: observer, Store: l.store, Logger: log})
	l.scaling = NewScalings(ScalingConfig{Observer: observer, Store: l.store, Logger: log, Policy: rollout.ScalePolicy{Quiet: time.Second}})
	run, begun := handling(externals)
	stop = clustertest.Run(t, controller.Run, l.scaling.Run, run)
	awaitBegun(t, begun)
	return stop
}

// apply applies a workload as a tool that is not the agent.
func (l *env) apply(t *testing.T, kind, image string) {
	t.Helper()
	objects, err := manifest.Parse("web.yaml", []byte(workloadstest.Text(kind, image, "")))
	if err != nil {
		t.Fatal(err)
	}
	client := l.Dynamic().Resource(workloads.Resource(kind)).Namespace(l.Namespace)
	if _, err := client.Apply(t.Context(), "web", objects[0].Unstructured, metav1.ApplyOptions{FieldManager: "helm", Force: true}); err != nil {
		t.Fatal(err)
	}
}

// awaitPods waits until the pods of the namespace, read by a client of the test's own, have
// the image of each kind's last template, and all of them are ready.
func (l *env) awaitPods(t *testing.T, want map[string]string) {
	t.Helper()
	clustertest.Eventually(t, fmt.Sprint("pods are ", want), func() bool {
		pods, err := l.Typed().CoreV1().Pods(l.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, pod := range pods.Items {
			owner := metav1.GetControllerOf(&pod)
			kind := strings.Replace(owner.Kind, "ReplicaSet", rollout.KindDeployment, 1)
			seen[kind] = true
			if pod.DeletionTimestamp != nil || pod.Spec.Containers[0].Image != want[kind] || !rollout.Ready(&pod) {
				return false
			}
		}
		return len(seen) == len(want)
	})
}

// recorded returns the external rollouts of a kind, in words, in the order of revisions.
func (l *env) recorded(t *testing.T, kind string) (words []string) {
	t.Helper()
	for _, rec := range l.external(t) {
		if rec.Workload.Kind != kind {
			continue
		}
		if rec.ApplicationID != "" {
			t.Errorf("%s belongs to application %q", rec.ID, rec.ApplicationID)
		}
		words = append(words, fmt.Sprintf("%d %s→%s late=%t %s", rec.Revision, rec.ImagesBefore, rec.Images, rec.FoundLate, rec.Phase))
	}
	return words
}

// awaitScalable waits until the scalings know that the last rollouts of some kinds have ended: what is
// scaled before that is part of the rollout.
func (l *env) awaitScalable(t *testing.T, kinds ...string) {
	t.Helper()
	name := types.NamespacedName{Namespace: l.Namespace, Name: "web"}
	for _, kind := range kinds {
		clustertest.Eventually(t, "the rollout of the "+kind+" has ended for its scalings", func() bool {
			l.scaling.mu.Lock()
			defer l.scaling.mu.Unlock()
			cached, known := l.scaling.cfg.Observer.Get(kind, name), l.scaling.known[workloadKey{kind, name}]
			return cached != nil && known.Template == cached.Workload.Template.Digest && !known.Rolling
		})
	}
}

// TestEveryRolloutIsRecorded changes workloads of no application, while the agent watches and
// while it does not.
func TestEveryRolloutIsRecorded(t *testing.T) {
	t.Parallel()
	kinds := []string{rollout.KindDeployment, rollout.KindStatefulSet, rollout.KindDaemonSet}
	l := newEnv(t)
	all := func(image string) {
		t.Helper()
		want := map[string]string{}
		for _, kind := range kinds {
			l.apply(t, kind, image)
			want[kind] = image
		}
		l.awaitPods(t, want)
	}
	check := func(want ...string) {
		t.Helper()
		for _, kind := range kinds {
			clustertest.Eventually(t, fmt.Sprint(kind, " ", want), func() bool { return slices.Equal(l.recorded(t, kind), want) })
		}
	}
	all("web:1") // before the cluster is watched
	stop := l.watchAll(t)
	check()
	all("web:2")
	second := "2 web:1→web:2 late=false Complete"
	check(second)

	// None of these is a rollout.
	l.awaitScalable(t, rollout.KindDeployment, rollout.KindStatefulSet)
	l.Patch(t, rollout.KindDeployment, "hpa", `{"spec":{"replicas":3}}`, "scale")
	l.Patch(t, rollout.KindStatefulSet, "hpa", `{"spec":{"replicas":2}}`, "scale")
	l.Patch(t, rollout.KindDaemonSet, "kubectl-annotate", `{"metadata":{"annotations":{"note":"x"}}}`)
	clustertest.Eventually(t, "two scalings", func() bool {
		records, err := l.store.Rollouts(t.Context(), store.RolloutQuery{Kind: deploy.RolloutKindScaling, Cluster: l.Name()})
		if err != nil {
			t.Fatal(err)
		}
		return len(records) == 2 && !slices.ContainsFunc(records, func(r deploy.Rollout) bool {
			return r.Phase != deploy.RolloutComplete || r.ApplicationID != "" || r.ReplicasBefore != 1 || r.ReplicasAfter < 2
		})
	})
	check(second)

	stop()
	time.Sleep(2 * time.Second) // times of the cluster are in whole seconds
	all("web:1")                // the template from before
	time.Sleep(2 * time.Second)
	stop = l.watchAll(t)
	third := "3 web:2→web:1 late=true Complete"
	check(second, third)
	stop()
	stop = l.watchAll(t) // finds nothing new
	all("web:4")
	check(second, third, "4 web:1→web:4 late=false Complete")

	stop()
	for _, kind := range kinds { // created again while the agent is away
		err := l.Dynamic().Resource(workloads.Resource(kind)).Namespace(l.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
		if err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, "they are gone", func() bool {
		there := 0
		for _, kind := range kinds {
			list, err := l.Dynamic().Resource(workloads.Resource(kind)).Namespace(l.Namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			there += len(list.Items)
		}
		return there == 0
	})
	l.watchAll(t)
	all("web:5")
	for _, kind := range kinds {
		clustertest.Eventually(t, kind+" created again", func() bool { return slices.Contains(l.recorded(t, kind), "1 →web:5 late=false Complete") })
		if diff := cmp.Diff(4, len(l.recorded(t, kind))); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", kind, diff)
		}
	}
}

// TestStuckRolloutsOfOthersFail: a rollout of another tool without progress fails after its progress
// deadline.
func TestStuckRolloutsOfOthersFail(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.watchAll(t)
	l.apply(t, rollout.KindDeployment, "web:never-ready")
	l.Patch(t, rollout.KindDeployment, "helm", `{"spec":{"progressDeadlineSeconds":1}}`)
	if rec := l.await(t, `revision 1 by "helm": Failed`); !strings.Contains(rec.Reason, "deadline") && !strings.Contains(rec.Reason, "no progress") {
		t.Errorf("the reason is %q", rec.Reason)
	}
}
