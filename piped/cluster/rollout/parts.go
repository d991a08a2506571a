package rollout

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// measureLimit is how long the end of a rollout waits for what its pods tell.
const measureLimit = 2 * time.Second

// Measured returns rec, which has just ended by s, with the parts that its pods tell.
// One that ended without its pods, and one whose pods cannot be read soon, has none.
func Measured(ctx context.Context, o Observer, rec deploy.Rollout, s Snapshot) deploy.Rollout {
	switch rec.Phase {
	case deploy.RolloutComplete, deploy.RolloutFailed, deploy.RolloutTimedOut:
	default:
		return rec
	}
	if s.Workload == nil {
		return rec
	}
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	if pods, err := o.NewPods(ctx, rec, s); err == nil {
		rec.Parts = Parts(pods, s.Workload.TemplateManagedAt)
	}
	return rec
}

// Parts says how long the slowest of pods took for each part of becoming ready. Pods
// that were there before since, when the template was written, are of an earlier
// rollout of the same template and do not count. What a pod does not tell, or tells
// by clocks that differ, is left out.
func Parts(pods []corev1.Pod, since time.Time) (slowest deploy.RolloutParts) {
	for i := range pods {
		pod := &pods[i]
		if pod.CreationTimestamp.Time.Before(since) {
			continue
		}
		scheduled, started, ready := scheduledAt(pod), lastStart(pod), becameTrue(pod, corev1.PodReady)
		raise(&slowest.Schedule, pod.CreationTimestamp.Time, scheduled)
		raise(&slowest.Pull, scheduled, started)
		raise(&slowest.Ready, started, ready)
	}
	return slowest
}

// raise has t be no less than the time between two moments, if both are known.
func raise(t *deploy.Took, from, to time.Time) {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return
	}
	*t = deploy.Took{Measured: true, Time: max(t.Time, to.Sub(from))}
}

// scheduledAt returns when a node was chosen. A scheduler that got no answer to its binding
// marks the pod as not scheduled although it is: then it is when the node took the pod over.
func scheduledAt(pod *corev1.Pod) time.Time {
	if at := becameTrue(pod, corev1.PodScheduled); !at.IsZero() || pod.Status.StartTime == nil {
		return at
	}
	return pod.Status.StartTime.Time
}

// becameTrue returns when a condition became true, the zero time if it is not.
func becameTrue(pod *corev1.Pod, condition corev1.PodConditionType) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == condition && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// lastStart returns when the last of a pod's containers had started first: then all
// images were there, and init containers had run. It is the zero time as long as one
// has not, and for one that was restarted more than once, whose first start nobody
// knows any more.
func lastStart(pod *corev1.Pod) (last time.Time) {
	if len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) {
		return time.Time{}
	}
	for _, c := range pod.Status.ContainerStatuses {
		at := firstStart(c)
		if at.IsZero() {
			return time.Time{}
		}
		last = latest(last, at)
	}
	return last
}

func firstStart(c corev1.ContainerStatus) time.Time {
	state := c.State
	switch {
	case c.RestartCount == 1:
		state = c.LastTerminationState
	case c.RestartCount > 1:
		return time.Time{}
	}
	switch {
	case state.Running != nil:
		return state.Running.StartedAt.Time
	case state.Terminated != nil:
		return state.Terminated.StartedAt.Time
	}
	return time.Time{}
}

// NewPods returns those of a workload's pods that the template of s has made and that
// are not stopping.
func NewPods(pods []corev1.Pod, rec deploy.Rollout, s Snapshot) []corev1.Pod {
	target, _ := PodOwners(rec, s)
	var found []corev1.Pod
	for _, pod := range pods {
		owner := metav1.GetControllerOfNoCopy(&pod)
		if owner != nil && target != "" && string(owner.UID) == target && pod.DeletionTimestamp == nil && current(&pod, s.Workload) {
			found = append(found, pod)
		}
	}
	return found
}

// current reports whether a pod of w is of its newest revision. All pods of a
// ReplicaSet are of one.
func current(pod *corev1.Pod, w *Workload) bool {
	return w.Kind == KindDeployment || pod.Labels[revisionLabel(w)] == w.UpdateRevision
}
