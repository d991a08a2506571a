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

// Unstick deletes the pods that keep a StatefulSet from leaving revisions that
// failed, and returns their names. With the pod management policy OrderedReady
// the StatefulSet controller replaces no pod while one is not ready, not even
// that one, so that a rollback would wait for ever for a pod that cannot start.
//
// It deletes only pods that the StatefulSet controls, that are of one of the
// failed revisions (names of ControllerRevisions), not ready and not stopping
// already, each only as it was read. Nothing is deleted before the controller has
// seen the StatefulSet's last change, nor while that asks for a failed revision
// itself. What has changed meanwhile is left for the next call.
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

// leaves reports whether the StatefulSet's controller is at work to replace the
// failed revisions, one ready pod after the other.
func leaves(set *appsv1.StatefulSet, failed []string) bool {
	return set.DeletionTimestamp == nil && set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement &&
		set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType &&
		set.Status.ObservedGeneration >= set.Generation && !slices.Contains(failed, set.Status.UpdateRevision)
}

// deleteAsRead deletes the pod if it is still the one that was read, unchanged.
func (c *Client) deleteAsRead(ctx context.Context, pod *corev1.Pod) error {
	return c.Typed().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
}
