package clustertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

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

// KeepReady has the pods of a namespace that a label selector finds become ready, also those that
// are made later, until hold is called or the test ends.
func KeepReady(t testing.TB, client kubernetes.Interface, namespace, selector string) (hold func()) {
	selector = strings.TrimPrefix(selector+","+BehaviorLabel+"!=ready", ",")
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() {
		for ctx.Err() == nil {
			if _, err := Behave(ctx, client, namespace, selector, "ready"); err != nil && ctx.Err() == nil {
				t.Logf("trying again: %v", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	hold = sync.OnceFunc(func() {
		cancel()
		background.Wait()
	})
	t.Cleanup(hold)
	return hold
}
