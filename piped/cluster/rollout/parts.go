package rollout

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// measureLimit bounds the time to read the pods of a rollout that has ended.
const measureLimit = 2 * time.Second

// Measured returns rec, which has just ended on s, with Parts computed from the new pods. It
// returns rec without Parts in phases other than Complete, Failed and TimedOut, and if the
// pods cannot be read within measureLimit.
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

// Parts returns the longest time that any pod spent in each step of becoming ready. Pods
// created before since, when the template was written, belong to an earlier rollout of the
// same template and are ignored. A step without start or end, or with an end before its
// start (clocks differ), is not measured.
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

// raise sets t to the time between two moments if that is longer and both are known.
func raise(t *deploy.Took, from, to time.Time) {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return
	}
	*t = deploy.Took{Measured: true, Time: max(t.Time, to.Sub(from))}
}

// scheduledAt returns when the scheduler chose a node. If the scheduler got no response to
// its binding, it marks a bound pod as not scheduled; scheduledAt then returns when the
// kubelet accepted the pod.
func scheduledAt(pod *corev1.Pod) time.Time {
	if at := becameTrue(pod, corev1.PodScheduled); !at.IsZero() || pod.Status.StartTime == nil {
		return at
	}
	return pod.Status.StartTime.Time
}

// becameTrue returns when a condition became true, the zero time if it is not true.
func becameTrue(pod *corev1.Pod, condition corev1.PodConditionType) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == condition && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// LastReady returns when the last of some pods became ready, the zero time unless all are.
func LastReady(pods []corev1.Pod) (last time.Time) {
	for i := range pods {
		at := becameTrue(&pods[i], corev1.PodReady)
		if at.IsZero() {
			return time.Time{}
		}
		last = latest(last, at)
	}
	return last
}

// lastStart returns the latest of the first starts of a pod's containers. By then all images
// were pulled and the init containers had run. It returns the zero time if a container has
// not started or was restarted more than once, because its first start is then unknown.
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

// firstStart returns when a container first started, the zero time if unknown. The status
// contains only the last two starts.
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

// NewPods returns the pods that have the template of s and are not being deleted.
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

// current reports whether a pod of w has the newest revision. For a Deployment it returns
// true, because the ReplicaSet determines the revision.
func current(pod *corev1.Pod, w *Workload) bool {
	return w.Kind == KindDeployment || pod.Labels[revisionLabel(w)] == w.UpdateRevision
}
