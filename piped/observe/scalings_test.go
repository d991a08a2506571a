package observe

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

// watchScalings records scalings with caches of its own, as an agent that was started
// does, until stop is called; killed, it does not store what it knows.
func (l *env) watchScalings(t *testing.T, policy rollout.ScalePolicy) (stop func()) {
	t.Helper()
	controller := watch.New(l.Cluster)
	scalings := NewScalings(ScalingConfig{
		Observer: workloads.NewObserver(l.Cluster, controller), Store: l.store, Policy: policy, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	stop = clustertest.Run(t, controller.Run, scalings.Run)
	clustertest.Eventually(t, "the workloads of the test are known", func() bool {
		deployed, err := l.store.Rollouts(t.Context(), store.RolloutQuery{Cluster: l.Name(), Kind: deploy.RolloutKindRollout})
		if err != nil {
			t.Fatal(err)
		}
		scalings.mu.Lock()
		defer scalings.mu.Unlock()
		for _, rec := range deployed {
			key := workloadKey{rec.Workload.Kind, types.NamespacedName{Namespace: rec.Workload.Namespace, Name: rec.Workload.Name}}
			if _, known := scalings.known[key]; !known {
				return false
			}
		}
		return true
	})
	return stop
}

// scalings returns the records of scalings, the newest first.
func (l *env) scalings(t *testing.T) []deploy.Rollout {
	t.Helper()
	records, err := l.store.Rollouts(t.Context(), store.RolloutQuery{Kind: deploy.RolloutKindScaling, Cluster: l.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// awaitScaling waits until the newest scaling is as said.
func (l *env) awaitScaling(t *testing.T, want string) (rec deploy.Rollout) {
	t.Helper()
	said := ""
	for deadline := time.Now().Add(10 * time.Minute); said != want; time.Sleep(25 * time.Millisecond) {
		if records := l.scalings(t); len(records) > 0 {
			rec = records[0]
			said = fmt.Sprintf("%d to %d by %s: %s", rec.ReplicasBefore, rec.ReplicasAfter, rec.ChangedBy, rec.Phase)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the newest scaling is %q, want %q", said, want)
		}
	}
	return rec
}

func (l *env) scale(t *testing.T, kind string, to int) {
	t.Helper()
	l.Patch(t, kind, "kube-controller-manager", fmt.Sprintf(`{"spec":{"replicas":%d}}`, to), "scale")
}

// TestScalingsAreRecordedApart scales workloads as an autoscaler does, while the agent
// watches and over its restarts.
func TestScalingsAreRecordedApart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{rollout.KindDeployment, rollout.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			policy := rollout.ScalePolicy{Quiet: 300 * time.Millisecond}
			// What is in progress must last until this test has seen it and has stopped the agent.
			slow := workloadstest.SlowText(kind, "web:never-ready", "replicas: 1, minReadySeconds: 0")
			hold := l.keepReady(t)
			if rec := l.Wait(t, l.Apply(t, "a", slow), nil); rec.Phase != deploy.RolloutComplete {
				t.Fatalf("%s: %s", rec.Phase, rec.Reason)
			}
			stop := l.watchScalings(t, policy)
			l.scale(t, kind, 2)
			up := l.awaitScaling(t, "1 to 2 by kube-controller-manager: Complete")
			if took := up.CompletedAt.Sub(up.StartedAt); took < time.Second || took > 3*time.Minute || up.ApplicationID != l.App || up.ApplicationName != "web" || up.DeploymentID != "" {
				t.Errorf("a scaling of %s: %+v", took, up)
			}
			hold()
			l.scale(t, kind, 4)
			open := l.awaitScaling(t, "2 to 4 by kube-controller-manager: Progressing")
			stop()
			l.scale(t, kind, 3)
			stop = l.watchScalings(t, policy)
			hold = l.keepReady(t)
			if ended := l.awaitScaling(t, "2 to 3 by kube-controller-manager: Complete"); ended.ID != open.ID || !ended.StartedAt.Equal(open.StartedAt) {
				t.Errorf("after the restart %s of %s, before it %s of %s", ended.ID, ended.StartedAt, open.ID, open.StartedAt)
			}
			hold()
			l.scale(t, kind, 5)
			l.awaitScaling(t, "3 to 5 by kube-controller-manager: Progressing")
			l.Patch(t, kind, "kubectl-set", `{"spec":{"template":{"metadata":{"labels":{"more":"yes"}}}}}`)
			if over := l.awaitScaling(t, "3 to 5 by kube-controller-manager: Superseded"); over.SupersededBy != "kubectl-set" {
				t.Errorf("superseded by %q", over.SupersededBy)
			}
			stop()
			l.checkScalings(t, 3)
		})
	}
}

// checkScalings checks that each scaling was published once, and none as a rollout.
func (l *env) checkScalings(t *testing.T, want int) {
	t.Helper()
	events, err := l.store.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[deploy.EventType]int{}
	for _, e := range events {
		counts[e.Type]++
	}
	if diff := cmp.Diff(map[deploy.EventType]int{deploy.EventTriggered: 1, deploy.EventRolloutStarted: 1, deploy.EventRolloutEnded: 1, deploy.EventScalingEnded: want}, counts); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if records := l.scalings(t); len(records) != want {
		t.Errorf("%d scalings, want %d: %+v", len(records), want, records)
	}
}

// TestFlappingAutoscalersDoNotFloodTheStore: fifty workloads whose autoscalers change
// their minds all the time cost one write each for as long as they do, and one when
// the agent stops.
func TestFlappingAutoscalersDoNotFloodTheStore(t *testing.T) {
	t.Parallel()
	const workloads, flaps = 50, 9 // the last change is to two replicas: it begins a scaling of what was behind until then
	l := newEnv(t)
	deployments := l.Typed().AppsV1().Deployments(l.Namespace)
	for i := range workloads {
		d, err := deployments.Create(t.Context(), flapping(l.App, i), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.store.SaveRollout(t.Context(), deploy.Rollout{
			ID: fmt.Sprint("own-", i), ApplicationID: l.App, DeploymentID: "d", StageID: "s", Cluster: l.Name(), UID: string(d.UID), Phase: deploy.RolloutComplete,
			Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: rollout.KindDeployment, Namespace: l.Namespace, Name: d.Name},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, "all pods are ready", func() bool {
		list, err := deployments.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ready := 0
		for _, d := range list.Items {
			ready += int(d.Status.ReadyReplicas)
		}
		return ready == workloads
	})
	stop := l.watchScalings(t, rollout.ScalePolicy{Quiet: 5 * time.Minute}) // longer than a round of changes may take
	for n := range flaps {
		for i := range workloads {
			_, err := deployments.Patch(t.Context(), flapping(l.App, i).Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 2-n%2),
				metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	clustertest.Eventually(t, "every scaling has begun", func() bool { return len(l.scalings(t)) == workloads })
	writes := int64(0)
	for _, rec := range l.scalings(t) {
		writes += rec.Version
	}
	t.Logf("%d writes for %d changes", writes, workloads*flaps)
	if writes != workloads {
		t.Errorf("%d writes while %d workloads were scaled %d times, want one for each workload", writes, workloads, flaps)
	}
	stop()
	for _, rec := range l.scalings(t) {
		if rec.Version > 2 || rec.Phase != deploy.RolloutProgressing && rec.Phase != deploy.RolloutComplete {
			t.Errorf("after the agent has stopped: %+v", rec)
		}
	}
}

func flapping(app string, i int) *appsv1.Deployment {
	labels := map[string]string{"app": fmt.Sprint("flapping-", i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Labels: map[string]string{manifest.LabelApplication: app}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "web:1"}}}},
		},
	}
}
