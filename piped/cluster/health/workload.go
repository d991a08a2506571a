package health

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// unseen is the reason for an object whose controller has not observed its last change.
const unseen = "its controller has not seen the change yet"

// ofPods formats "2 of 3 pods are available".
func ofPods(n, of int32, what string) string {
	if of == 1 {
		return fmt.Sprintf("%d of 1 pod is %s", n, what)
	}
	return fmt.Sprintf("%d of %d pods are %s", n, of, what)
}

// workload is the rule of a live Deployment, StatefulSet or DaemonSet. The health is ""
// (unknown) if the object cannot be parsed.
func workload(u *unstructured.Unstructured) (deploy.Health, string) {
	w, err := rollout.WorkloadFrom(u)
	if err != nil {
		return "", "it cannot be read: " + err.Error()
	}
	return Workload(w)
}

// Workload is Live for a Deployment, StatefulSet or DaemonSet in its cached form, without
// health checks.
func Workload(w rollout.Workload) (deploy.Health, string) {
	switch {
	case w.Deleting:
		return deploy.HealthProgressing, deleted(nil)
	case w.Paused:
		return deploy.HealthSuspended, "its rollout is paused"
	case w.ObservedGeneration < w.Generation:
		return deploy.HealthProgressing, unseen
	}
	switch w.Kind {
	case rollout.KindStatefulSet:
		return statefulSet(w)
	case rollout.KindDaemonSet:
		return daemonSet(w)
	}
	return deployment(w)
}

func deployment(w rollout.Workload) (deploy.Health, string) {
	switch {
	case w.Failure.Status == "True":
		return deploy.HealthDegraded, join("pods cannot be created", w.Failure.Message)
	case w.Progressing.Reason == "ProgressDeadlineExceeded":
		return deploy.HealthDegraded, fmt.Sprintf("its rollout has made no progress for %s; %s", w.Deadline, ofPods(w.Available, w.Replicas, "available"))
	case w.Updated < w.Replicas:
		return deploy.HealthProgressing, ofPods(w.Updated, w.Replicas, "new")
	case w.Total > w.Updated:
		return deploy.HealthProgressing, fmt.Sprintf("old pods that are still there: %d", w.Total-w.Updated)
	case w.Available >= w.Replicas:
		return deploy.Healthy, ""
	}
	reason := ofPods(w.Available, w.Replicas, "available")
	if w.Unavailable && w.Progressing.Reason == "NewReplicaSetAvailable" {
		return deploy.HealthDegraded, reason + ", after all had been"
	}
	return deploy.HealthProgressing, reason
}

func statefulSet(w rollout.Workload) (deploy.Health, string) {
	switch {
	case w.Available < w.Replicas:
		return deploy.HealthProgressing, ofPods(w.Available, w.Replicas, "available")
	case w.Strategy == string(appsv1.OnDeleteStatefulSetStrategyType):
		return deploy.Healthy, ""
	case w.Updated < w.Replicas-w.Partition:
		return deploy.HealthProgressing, ofPods(w.Updated, w.Replicas-w.Partition, "new")
	}
	return deploy.Healthy, ""
}

func daemonSet(w rollout.Workload) (deploy.Health, string) {
	switch {
	case w.Available < w.Replicas:
		return deploy.HealthProgressing, ofPods(w.Available, w.Replicas, "available")
	case w.Updated < w.Replicas && w.Strategy != string(appsv1.OnDeleteDaemonSetStrategyType):
		return deploy.HealthProgressing, ofPods(w.Updated, w.Replicas, "new")
	}
	return deploy.Healthy, ""
}

// ReplicaSet is Live for a ReplicaSet, without health checks.
func ReplicaSet(rs *appsv1.ReplicaSet) (deploy.Health, string) {
	desired := int32(1)
	if rs.Spec.Replicas != nil {
		desired = *rs.Spec.Replicas
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return deploy.HealthDegraded, join("pods cannot be created", c.Message)
		}
	}
	switch {
	case rs.DeletionTimestamp != nil:
		return deploy.HealthProgressing, deleted(rs.Finalizers)
	case rs.Status.ObservedGeneration < rs.Generation:
		return deploy.HealthProgressing, unseen
	case rs.Status.AvailableReplicas < desired:
		return deploy.HealthProgressing, ofPods(rs.Status.AvailableReplicas, desired, "available")
	case rs.Status.Replicas > desired:
		return deploy.HealthProgressing, fmt.Sprintf("pods that are still to be stopped: %d", rs.Status.Replicas-desired)
	}
	return deploy.Healthy, ""
}

// Pod is Live for a Pod, without health checks. A pod is degraded when it has failed, when a
// container crashes repeatedly, or when waiting does not remove the problem that keeps it
// from being ready.
func Pod(pod *corev1.Pod, now time.Time) (deploy.Health, string) {
	if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodSucceeded {
		return deploy.Healthy, ""
	}
	if troubles := rollout.Explain([]corev1.Pod{*pod}, nil, now); len(troubles) > 0 {
		trouble := troubles[0]
		reason := trouble.Text
		if trouble.Container != "" {
			reason = "container " + trouble.Container + ": " + reason
		}
		if trouble.Hard || pod.Status.Phase == corev1.PodFailed || slices.ContainsFunc(pod.Status.ContainerStatuses, failsAgain) {
			return deploy.HealthDegraded, reason
		}
		return deploy.HealthProgressing, reason
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return deploy.HealthProgressing, "it is stopping"
	case pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure:
		return deploy.HealthProgressing, "it has not ended"
	case rollout.Ready(pod):
		return deploy.Healthy, ""
	}
	return deploy.HealthProgressing, "it is starting"
}

// failsAgain reports whether a container is in CrashLoopBackOff, or has been restarted and is
// not ready.
func failsAgain(c corev1.ContainerStatus) bool {
	if c.State.Waiting != nil {
		return c.State.Waiting.Reason == "CrashLoopBackOff"
	}
	return c.State.Running != nil && !c.Ready && c.LastTerminationState.Terminated != nil
}

// Job is Live for a Job, without health checks.
func Job(j *batchv1.Job) (deploy.Health, string) {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobFailed:
			return deploy.HealthDegraded, join("it failed: "+c.Reason, c.Message)
		case c.Type == batchv1.JobComplete:
			return deploy.Healthy, ""
		}
	}
	switch {
	case j.DeletionTimestamp != nil:
		return deploy.HealthProgressing, deleted(j.Finalizers)
	case j.Spec.Suspend != nil && *j.Spec.Suspend:
		return deploy.HealthSuspended, "it is suspended"
	case j.Status.Active+j.Status.Succeeded+j.Status.Failed == 0:
		return deploy.HealthProgressing, "no pod has been started"
	}
	return deploy.HealthProgressing, fmt.Sprintf("pods: %d running, %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
}

// cronJob is the rule of a CronJob: it is degraded when its last run has ended without
// success.
func cronJob(c *batchv1.CronJob) (deploy.Health, string) {
	last := c.Status.LastScheduleTime
	switch {
	case c.Spec.Suspend != nil && *c.Spec.Suspend:
		return deploy.HealthSuspended, "it is suspended"
	case last == nil || len(c.Status.Active) > 0:
		return deploy.Healthy, ""
	case c.Status.LastSuccessfulTime == nil || c.Status.LastSuccessfulTime.Before(last):
		return deploy.HealthDegraded, "its last run, of " + last.UTC().Format(time.RFC3339) + ", did not succeed"
	}
	return deploy.Healthy, ""
}
