package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

func statefulSet(image, spec string, pod ...string) string {
	return workload(rollout.KindStatefulSet, "web", image, spec, pod...)
}

const partitioned = "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"

// TestRolloutsOfStatefulSets: their ends are read from the status, which their
// controller writes for each revision.
func TestRolloutsOfStatefulSets(t *testing.T) {
	first := statefulSet("1", "replicas: 3")
	complete := func(updated string) string {
		return "SUCCESS\nComplete: web: " + updated + " updated, 3 of 3 available"
	}
	runRollouts(t, []rolloutCase{
		{name: "first deploy", change: first, want: complete("3 pods")},
		{name: "image change", before: first, change: statefulSet("2", "replicas: 3"), want: complete("3 pods")},
		{name: "all pods at once", before: statefulSet("1", "replicas: 3, podManagementPolicy: Parallel"),
			change: statefulSet("2", "replicas: 3, podManagementPolicy: Parallel"), want: complete("3 pods")},
		{name: "minReadySeconds", before: first, change: statefulSet("2", "replicas: 1, minReadySeconds: 2"), want: "SUCCESS\nComplete: web: 1 pod updated, 1 of 1 available"},
		{name: "partition", before: first, change: statefulSet("2", "replicas: 3, "+partitioned), want: complete("1 pod") + " (partition 2)"},
		{name: "partition lowered", before: statefulSet("1", "replicas: 3"), prepare: func(t *testing.T, l *rolloutEnv) {
			l.manifests = statefulSet("2", "replicas: 3, "+partitioned)
			l.mustSucceed(t, l.Sync(), l.deployment("later"))
		}, change: statefulSet("2", "replicas: 3"), want: complete("3 pods")},
		{name: "scaled up during the rollout", before: first, change: statefulSet("never-ready", "replicas: 3"), at: "web: 1 of 3 pods updated",
			during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
				if _, err := l.client.AppsV1().StatefulSets(l.ns).Patch(context.Background(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale"); err != nil {
					t.Error(err)
				}
				l.keepReady(t)
			}, want: "SUCCESS\nComplete: web: 5 pods updated, 5 of 5 available"},
		{name: "replicas only", before: first, change: statefulSet("1", "replicas: 4"), want: "SUCCESS\nNoRollout: web: pod template unchanged, scaled from 3 to 4"},
		{name: "zero replicas", before: statefulSet("1", "replicas: 0"), change: statefulSet("2", "replicas: 0"), want: "SUCCESS\nComplete: web: 0 pods updated, 0 of 0 available"},
		{name: "OnDelete", before: statefulSet("1", "replicas: 1, updateStrategy: {type: OnDelete}"), change: statefulSet("2", "replicas: 1, updateStrategy: {type: OnDelete}"),
			want: "SUCCESS\nNoRollout: web: update strategy OnDelete, pods change only when they are deleted"},
		{name: "annotation only, while a pod is down", before: first, prepare: func(t *testing.T, l *rolloutEnv) {
			l.breakPod(t, "web-0")
			eventually(t, func() string {
				set, err := l.client.AppsV1().StatefulSets(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
				if err != nil {
					return err.Error()
				}
				if n := set.Status.AvailableReplicas; n != 2 {
					return fmt.Sprintf("%d pods are available, want 2", n)
				}
				return ""
			})
		}, change: strings.Replace(first, "name: web}", "name: web, annotations: {note: x}}", 1), want: unchanged},
		{name: "blocked by a quota", before: first, prepare: blockPods, change: statefulSet("2", "replicas: 5"),
			want: "re:FAILURE: StatefulSet NS/web: nothing new can be created: [0-3] of 5 pods updated, [0-3] of 5 available; pods cannot be created: .*exceeded quota: pods.*\nFailed: web: .*"},
		{name: "bad image", begin: failLater, before: first, change: statefulSet("bad-image", "replicas: 3"),
			want: "re:FAILURE: StatefulSet NS/web: new pods do not start: 1 of 3 pods updated, 2 of 3 available; pod web-2, container app: (ErrImagePull|ImagePullBackOff): the image cannot be pulled .*\nFailed: web: .*"},
	})
}

// TestRollbackOfAStuckStatefulSet: its controller waits for the failed pod, even
// when it has to replace it. The rollback deletes that pod, and no other.
func TestRollbackOfAStuckStatefulSet(t *testing.T) {
	for _, image := range []string{"bad-image", "crash", "never-ready"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			l.succeed(t, statefulSet("1", "replicas: 3"))
			l.Policy.DefaultDeadline = 20 * time.Second // a StatefulSet has none of its own; its pod is replaced within it
			l.manifests = statefulSet(image, "replicas: 3")
			run := l.deployment("now")
			if result := l.run(t, l.Sync(), run, "", nil); result.Status != deploy.StageFailure || result.NoRollback {
				t.Fatalf("the stage ended %s: %s", result.Status, result.Reason)
			}
			l.Policy.DefaultDeadline = 0
			kept := l.pods(t, "web-0", "web-1")
			run.Stage = run.Deployment.Stages[1]
			result := l.run(t, l.Rollback(), run, "", nil)
			l.check(t, "SUCCESS\nComplete: web: 3 pods updated, 3 of 3 available", l.outcome(t, run, result))
			for name, uid := range l.pods(t, "web-0", "web-1") {
				if kept[name] != uid {
					t.Errorf("pod %s was replaced, though it had not failed", name)
				}
			}
			if n := strings.Count(l.said(), "Deleted pod web-"); n != 1 || !strings.Contains(l.said(), "Deleted pod web-2: it is not ready and of web-") {
				t.Errorf("%d pods were deleted:\n%s", n, l.said())
			}
		})
	}
}

// pods returns the UIDs of pods.
func (l *rolloutEnv) pods(t *testing.T, names ...string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for _, name := range names {
		pod, err := l.client.CoreV1().Pods(l.ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = string(pod.UID)
	}
	return uids
}

// daemonSet runs on the nodes of the environment, see addNode.
func daemonSet(image, spec string) string {
	return workload(rollout.KindDaemonSet, "web", image, spec, onPool)
}

const onPool = "nodeSelector: {pool: NS}, tolerations: [{key: pool, operator: Exists}]"

// addNode adds a node that only the environment's DaemonSet runs on.
func (l *rolloutEnv) addNode(t *testing.T, n int) {
	t.Helper()
	nodes := l.client.CoreV1().Nodes()
	name := fmt.Sprintf("%s-%d", l.ns, n)
	_, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": l.ns}, Annotations: map[string]string{
			"kwok.x-k8s.io/node": "fake", "devcluster.piped.dev/address": fmt.Sprintf("10.251.0.%d", n+1),
			"devcluster.piped.dev/cpu": "4", "devcluster.piped.dev/memory": "8Gi", "devcluster.piped.dev/pods": "10",
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "pool", Value: l.ns, Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// awaitNodes waits until a DaemonSet is available on so many nodes.
func (l *rolloutEnv) awaitNodes(t *testing.T, name string, nodes int32) {
	t.Helper()
	eventually(t, func() string {
		set, err := l.client.AppsV1().DaemonSets(l.ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if n := set.Status.NumberAvailable; n != nodes {
			return fmt.Sprintf("%s is available on %d nodes, want %d", name, n, nodes)
		}
		return ""
	})
}

// TestRolloutsOfDaemonSets: on every node, also on one that comes meanwhile.
func TestRolloutsOfDaemonSets(t *testing.T) {
	first := daemonSet("1", "")
	complete := func(nodes string) string { return "SUCCESS\nComplete: web: updated on " + nodes + " available" }
	twoNodes := func(t *testing.T, l *rolloutEnv) {
		l.addNode(t, 0)
		l.addNode(t, 1)
		// Nodes count when the DaemonSet controller knows them.
		probe := strings.ReplaceAll(workload(rollout.KindDaemonSet, "probe", "1", "", onPool), "NS", l.ns)
		if _, err := l.client.AppsV1().DaemonSets(l.ns).Patch(t.Context(), "probe", types.ApplyPatchType, []byte(strings.TrimPrefix(probe, "---")), metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
		l.awaitNodes(t, "probe", 2)
	}
	runRollouts(t, []rolloutCase{
		{name: "first deploy", begin: twoNodes, change: first, want: complete("2 nodes, 2")},
		{name: "no node", change: first, want: complete("0 nodes, 0")},
		{name: "image change", begin: twoNodes, before: first, change: daemonSet("2", ""), want: complete("2 nodes, 2")},
		{name: "surge", begin: twoNodes, before: first, change: daemonSet("2", "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"), want: complete("2 nodes, 2")},
		{name: "annotation only", begin: twoNodes, before: first, change: strings.Replace(first, "name: web}", "name: web, annotations: {note: x}}", 1), want: unchanged},
		{name: "OnDelete", begin: twoNodes, before: first, change: daemonSet("2", "updateStrategy: {type: OnDelete}"),
			want: "SUCCESS\nNoRollout: web: update strategy OnDelete, pods change only when they are deleted"},
		{name: "a new node during the rollout", begin: twoNodes, before: first, change: daemonSet("never-ready", ""), at: "web: updated on 1 of 2 nodes",
			during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
				l.addNode(t, 2)
				eventually(t, func() string {
					set, err := l.client.AppsV1().DaemonSets(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
					if err != nil {
						return err.Error()
					}
					if n := set.Status.DesiredNumberScheduled; n != 3 {
						return fmt.Sprintf("wanted on %d nodes, want 3", n)
					}
					return ""
				})
				l.keepReady(t)
			}, want: complete("3 nodes, 3")},
		{name: "a new node afterwards", begin: twoNodes, before: first, change: daemonSet("2", ""), after: func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) {
			l.addNode(t, 2)
			l.awaitNodes(t, "web", 3)
		}, want: complete("2 nodes, 2")},
		{name: "bad image", begin: twoNodes, prepare: failLater, before: first, change: daemonSet("bad-image", ""),
			want: "re:FAILURE: DaemonSet NS/web: new pods do not start: updated on 1 of 2 nodes, 1 available; pod web-[0-9a-z]{5}, container app: (ErrImagePull|ImagePullBackOff): the image cannot be pulled .*\nFailed: web: .*"},
	})
}
