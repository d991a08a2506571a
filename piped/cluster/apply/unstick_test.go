package apply_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestUnstick: when a StatefulSet leaves a failed revision, the failed pods that are not
// ready are deleted. Pods of other workloads are not.
func TestUnstick(t *testing.T) {
	l := workloadstest.New(t)
	good, bad := workloadstest.Text(rollout.KindStatefulSet, "web:1", "replicas: 2"), workloadstest.Text(rollout.KindStatefulSet, "web:never-ready", "replicas: 2")
	l.Wait(t, l.Apply(t, "before", good), nil)
	l.Policy.DefaultDeadline = 1
	change := l.Apply(t, "change", bad)
	clustertest.Eventually(t, "a pod has the bad revision", func() bool { // the controller may need longer than the deadline
		set, err := l.Typed().AppsV1().StatefulSets(l.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || set.Status.ObservedGeneration != set.Generation || set.Status.UpdateRevision == set.Status.CurrentRevision {
			return false
		}
		pod, err := l.Typed().CoreV1().Pods(l.Namespace).Get(t.Context(), "web-1", metav1.GetOptions{})
		return err == nil && pod.DeletionTimestamp == nil && pod.Labels[appsv1.StatefulSetRevisionLabel] == set.Status.UpdateRevision
	})
	failed := l.Wait(t, change, nil)
	if failed.Phase != deploy.RolloutFailed || failed.TargetName == "" {
		t.Fatalf("%s of revision %q: %s", failed.Phase, failed.TargetName, failed.Reason)
	}
	unstick := func(when string, revision string, want ...string) {
		t.Helper()
		deleted, err := apply.New(l.Cluster).Unstick(t.Context(), failed.Workload, []string{revision})
		if err != nil || !slices.Equal(deleted, want) {
			t.Errorf("%s: deleted %v, %v; want %v", when, deleted, err, want)
		}
	}
	unstick("while the failed revision is asked for", failed.TargetName)
	l.Apply(t, "rollback", good)
	clustertest.Eventually(t, "the rollback is observed", func() bool {
		set, err := l.Typed().AppsV1().StatefulSets(l.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && set.Status.ObservedGeneration == set.Generation
	})
	unstick("another revision", "web-other")
	unstick("the failed revision", failed.TargetName, "web-1")
	unstick("once more", failed.TargetName)
	gone := failed.Workload
	gone.Name = "gone"
	if deleted, err := apply.New(l.Cluster).Unstick(t.Context(), gone, []string{failed.TargetName}); err != nil || len(deleted) > 0 {
		t.Errorf("a StatefulSet that is gone: deleted %v, %v", deleted, err)
	}
}
