package apply

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// Unstick deletes the pods that block the rollback of a StatefulSet, and returns their names.
// With the pod management policy OrderedReady, the StatefulSet controller replaces no pod
// while one is not ready, not even the unready pod itself. A rollback would therefore wait
// forever for a pod that cannot start.
//
// Unstick deletes only pods that the StatefulSet controls, that belong to one of the failed
// revisions (names of ControllerRevisions), and that are neither ready nor terminating. It
// deletes none while the controller has not observed the StatefulSet's last change, or while
// the update revision is a failed one. It skips pods that change concurrently; the caller
// calls it again.
func (c *Client) Unstick(ctx context.Context, ref deploy.ObjectRef, failed []string) (deleted []string, err error) {
	set, err := c.Typed().AppsV1().StatefulSets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.Classify(fmt.Errorf("read %s: %w", ref, err))
	}
	if !leaves(set, failed) {
		return nil, nil
	}
	pods, err := c.Typed().CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return nil, c.Classify(fmt.Errorf("list the pods of %s: %w", ref, err))
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !metav1.IsControlledBy(pod, set) || !slices.Contains(failed, pod.Labels[appsv1.StatefulSetRevisionLabel]) || rollout.Ready(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		err := c.deleteAsRead(ctx, pod)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return deleted, c.Classify(fmt.Errorf("delete pod %s, which keeps %s from rolling back: %w", pod.Name, ref, err))
		}
		deleted = append(deleted, pod.Name)
	}
	return deleted, nil
}

// leaves reports whether the StatefulSet controller is replacing the pods of the failed
// revisions in order, each after the one before is ready.
func leaves(set *appsv1.StatefulSet, failed []string) bool {
	return set.DeletionTimestamp == nil && set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement &&
		set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType &&
		set.Status.ObservedGeneration >= set.Generation && !slices.Contains(failed, set.Status.UpdateRevision)
}

// deleteAsRead deletes a pod. The error is a conflict if the pod has changed since it was
// read.
func (c *Client) deleteAsRead(ctx context.Context, pod *corev1.Pod) error {
	return c.Typed().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
}
