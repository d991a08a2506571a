package clustertest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// BehaviorLabel is the label of a pod by which it behaves otherwise than its image says:
// "never-ready", "ready" and so on, as the development cluster knows them.
const BehaviorLabel = "devcluster.piped.dev/behavior"

// Behave sets the behavior of the pods of a namespace that a label selector finds, and returns how
// many these are. It leaves out pods that are gone meanwhile.
func Behave(ctx context.Context, client kubernetes.Interface, namespace, selector, behavior string) (pods int, err error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, BehaviorLabel, behavior)
	for _, pod := range list.Items {
		_, err := client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case err == nil:
			pods++
		case !apierrors.IsNotFound(err):
			return pods, err
		}
	}
	return pods, nil
}
