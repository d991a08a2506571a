package workloads

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// Pods implements rollout.Observer. It returns the pods of the ReplicaSet that rolls out (of
// the workload for other kinds), the terminating pods of the workload, and the events of up
// to eventPods pods that are not ready.
func (o *Observer) Pods(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) ([]corev1.Pod, []corev1.Event, error) {
	if s.Workload == nil {
		return nil, nil, nil
	}
	list, err := o.pods(ctx, rec, s)
	if err != nil {
		return nil, nil, err
	}
	target, owners := rollout.PodOwners(rec, s)
	var pods []corev1.Pod
	for _, pod := range list.Items {
		owner := metav1.GetControllerOf(&pod)
		if owner != nil && owners[string(owner.UID)] && (string(owner.UID) == target || pod.DeletionTimestamp != nil) {
			pods = append(pods, pod)
		}
	}
	events, err := o.podEvents(ctx, pods)
	if err != nil || s.Workload.Kind == rollout.KindDeployment {
		return pods, events, err
	}
	// A Deployment has a condition for pods that cannot be created. For other kinds only
	// the events since the apply show it.
	own, err := o.events(ctx, rec.Workload.Namespace, s.Workload.UID)
	for _, e := range own {
		if !e.LastTimestamp.Time.Before(rec.ServerAppliedAt.Truncate(time.Second)) {
			events = append(events, e)
		}
	}
	return pods, events, err
}

// NewPods implements rollout.Observer. It returns an error for a workload with more than
// podLimit pods.
func (o *Observer) NewPods(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) ([]corev1.Pod, error) {
	if s.Workload == nil {
		return nil, nil
	}
	list, err := o.pods(ctx, rec, s)
	if err != nil {
		return nil, err
	}
	if list.Continue != "" {
		return nil, deploy.Errorf(deploy.Invalid, "%s has more than %d pods, which are too many to be read at once", rec.Workload, podLimit)
	}
	return rollout.NewPods(list.Items, rec, s), nil
}

// pods reads up to podLimit pods that the workload selects.
func (o *Observer) pods(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) (*corev1.PodList, error) {
	list, err := o.cluster.Typed().CoreV1().Pods(rec.Workload.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: s.Workload.Selector, Limit: podLimit})
	if err != nil {
		return nil, o.cluster.Classify(fmt.Errorf("list the pods of %s: %w", rec.Workload, err))
	}
	return list, nil
}

// podEvents reads the events of the first eventPods pods that are not ready.
func (o *Observer) podEvents(ctx context.Context, pods []corev1.Pod) ([]corev1.Event, error) {
	var events []corev1.Event
	read := 0
	for i := range pods {
		pod := &pods[i]
		if read == eventPods {
			break
		}
		if pod.DeletionTimestamp != nil || rollout.Ready(pod) {
			continue
		}
		read++
		found, err := o.events(ctx, pod.Namespace, string(pod.UID))
		if err != nil {
			return events, err
		}
		events = append(events, found...)
	}
	return events, nil
}

// events reads up to eventsPerObject events of one object.
func (o *Observer) events(ctx context.Context, namespace, uid string) ([]corev1.Event, error) {
	list, err := o.cluster.Typed().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": uid}.String(), Limit: eventsPerObject,
	})
	if err != nil {
		return nil, o.cluster.Classify(fmt.Errorf("list events in namespace %s: %w", namespace, err))
	}
	return list.Items, nil
}
