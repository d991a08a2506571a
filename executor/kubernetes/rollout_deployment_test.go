package kubernetes

import (
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/deploy"
)

// available is how a rollout of the Deployment "web" ends well.
func available(pods, replicaSet string) string {
	return "SUCCESS\nComplete: web: " + pods + " pods available in ReplicaSet " + replicaSet + ", no old pod left"
}

const unchanged = "SUCCESS\nNoRollout: web: pod template unchanged"

// TestRolloutsOfDeployments: what a commit changes, and how its rollout ends.
func TestRolloutsOfDeployments(t *testing.T) {
	first := web("1", "replicas: 3")
	runRollouts(t, []rolloutCase{
		{name: "first deploy", change: first, want: available("3 of 3", "web#1"), sets: 1},
		{name: "image change", before: first, change: web("2", "replicas: 3"), want: available("3 of 3", "web#2"), sets: 2},
		{name: "Recreate", before: web("1", "replicas: 2, strategy: {type: Recreate}"), change: web("2", "replicas: 2, strategy: {type: Recreate}"),
			want: available("2 of 2", "web#2"), sets: 2},
		{name: "all pods at once", before: first, change: web("2", "replicas: 3, strategy: {rollingUpdate: {maxUnavailable: 100%, maxSurge: 0}}"),
			want: available("3 of 3", "web#2"), sets: 2},
		{name: "one more pod at a time", before: first, change: web("2", "replicas: 3, strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}"),
			want: available("3 of 3", "web#2"), sets: 2},
		{name: "minReadySeconds", before: first, change: web("2", "replicas: 2, minReadySeconds: 2"), want: available("2 of 2", "web#2"), sets: 2},
		{name: "template and replicas", before: first, change: web("2", "replicas: 5"), want: available("5 of 5", "web#2"), sets: 2},
		{name: "zero replicas, scaled up afterwards", before: web("1", "replicas: 0"), change: web("2", "replicas: 0"),
			after: scaledTo(2), want: available("0 of 0", "web#2"), sets: 2},
		{name: "half of the pods are enough", spec: "  readyThreshold: 50%\n", before: web("1", "replicas: 2"), change: web("2", "replicas: 2, strategy: {rollingUpdate: {maxUnavailable: 100%}}", onePodOnly),
			want: available("1 of 2", "web#2"), sets: 2},
		{name: "no history", before: web("1", "replicas: 2, revisionHistoryLimit: 0"), change: web("2", "replicas: 2, revisionHistoryLimit: 0"), want: available("2 of 2", "web#2")},
		{name: "no progress deadline", before: first, change: web("2", "replicas: 3, progressDeadlineSeconds: 2147483647"), want: available("3 of 3", "web#2")},
	})
}

// TestChangesThatRollNothing: the template stays, and so do the pods.
func TestChangesThatRollNothing(t *testing.T) {
	first := web("1", "replicas: 3")
	runRollouts(t, []rolloutCase{
		{name: "identical", before: first, change: first, want: unchanged, sets: 1},
		{name: "annotation only", before: first, change: strings.Replace(first, "name: web}", "name: web, annotations: {note: x}}", 1), want: unchanged, sets: 1},
		{name: "label only", before: first, change: strings.Replace(first, "name: web}", "name: web, labels: {team: shop}}", 1), want: unchanged, sets: 1},
		{name: "replicas only", before: first, change: web("1", "replicas: 5"), want: "SUCCESS\nNoRollout: web: pod template unchanged, scaled from 3 to 5", sets: 1},
		{name: "minReadySeconds only", before: first, change: web("1", "replicas: 3, minReadySeconds: 30"), want: unchanged, sets: 1},
		{name: "strategy, history and deadline only", before: first,
			change: web("1", "replicas: 3, revisionHistoryLimit: 1, progressDeadlineSeconds: 90, strategy: {rollingUpdate: {maxSurge: 2}}"), want: unchanged, sets: 1},
		{name: "annotation only, while a pod is down", before: first, prepare: breakOnePod,
			change: strings.Replace(first, "name: web}", "name: web, annotations: {note: x}}", 1), want: unchanged, sets: 1},
	})
}

// onePodOnly lets one pod of a workload be scheduled, and no second one.
const onePodOnly = `nodeSelector: {kubernetes.io/hostname: node-0}, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}]}}`

// breakPod makes a pod that was ready fail its readiness probe.
func (l *rolloutEnv) breakPod(t *testing.T, pod string) {
	t.Helper()
	_, err := l.client.CoreV1().Pods(l.ns).Patch(t.Context(), pod, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"devcluster.piped.dev/behavior":"never-ready"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// breakOnePod does so to one pod of the Deployment.
func breakOnePod(t *testing.T, l *rolloutEnv) {
	pods, err := l.client.CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	l.breakPod(t, pods.Items[0].Name)
	l.awaitAvailable(t, len(pods.Items)-1)
}

// scaledTo has an autoscaler change the replicas of what has rolled out.
func scaledTo(replicas int) func(*testing.T, *rolloutEnv, deploy.Rollout) {
	return func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) {
		l.scaleTo(t, replicas)
		l.awaitAvailable(t, replicas)
	}
}

// TestDurationsWithAnotherClock: the agent's clock is off. How long a rollout took is
// measured by one clock all the same.
func TestDurationsWithAnotherClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind": -5 * time.Minute, "ahead": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			l.Now = func() time.Time { return time.Now().Add(off) }
			l.succeed(t, web("1", "replicas: 1"))
			m := regexp.MustCompile(`rollout complete after (\S+)`).FindStringSubmatch(l.said())
			if m == nil {
				t.Fatalf("the log does not say how long it took:\n%s", l.said())
			}
			if took, err := time.ParseDuration(m[1]); err != nil || took < 0 || took > time.Minute {
				t.Errorf("it took %s, %v", took, err)
			}
		})
	}
}
