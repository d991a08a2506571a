package observe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// nudge annotates the pods of p's workload and returns the outcome. It does not write pods
// that already have the annotation, and skips pods that were deleted or replaced by one with
// the same name. It changes no pod template and thus causes no rollout.
func nudge(ctx context.Context, c *cluster.Cluster, p deploy.Propagation, pace *pace) deploy.NudgeOutcome {
	client := c.Metadata().Resource(podResource).Namespace(p.Workload.Namespace)
	// ResourceVersion "0" reads the API server's cache. Pods that are missing there were
	// created after the change.
	fields := "status.phase=Running"
	if p.Workload.Kind == "Pod" {
		fields += ",metadata.name=" + p.Workload.Name
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: p.Selector, FieldSelector: fields, ResourceVersion: "0"})
	if err != nil {
		return deploy.NudgeOutcome{Problem: c.Classify(fmt.Errorf("list the pods of %s: %w", p.Workload, err)).Error()}
	}
	pods, over := propagate.Pods(list.Items, p)
	out := deploy.NudgeOutcome{Over: over}
	for i := range pods {
		pod := &pods[i]
		if !propagate.Notified(pod, p) {
			err := pace.wait(ctx, p.Settings.RatePerSecond)
			if err == nil {
				err = annotate(ctx, c, pod, propagate.Wanted(p))
			}
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				continue
			}
			if err != nil {
				out.Problem = c.Classify(fmt.Errorf("annotate pod %s/%s: %w", pod.Namespace, pod.Name, err)).Error()
				if ctx.Err() != nil || cluster.Unreachable(err) || apierrors.IsForbidden(err) || errors.Is(err, errNotPermitted) {
					return out // the other pods would fail in the same way
				}
				continue
			}
		}
		out.Pods, out.Names = out.Pods+1, append(out.Names, pod.Name)
	}
	return out
}

// permissionWait bounds how long a write waits for the agent's permission to write. After its
// start the agent may write once it has renewed its Lease in the cluster.
const permissionWait = 30 * time.Second

var errNotPermitted = fmt.Errorf("the agent could not write for %s", permissionWait)

// annotate writes the annotation on a pod.
func annotate(ctx context.Context, c *cluster.Cluster, pod *metav1.PartialObjectMetadata, value string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, permissionWait, errNotPermitted)
	defer cancel()
	return c.WhenPermitted(ctx, nil, func(ctx context.Context) error {
		_, err := c.Metadata().Resource(podResource).Namespace(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
			annotating(pod.UID, value), metav1.PatchOptions{FieldManager: cluster.FieldManager})
		return err
	})
}

// annotating returns a merge patch that sets the annotation. The UID makes the patch fail
// with a conflict on another pod with the same name.
func annotating(uid types.UID, value string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, uid, manifest.AnnotationConfigSync, value)
}

// pace limits the rate of writes to one cluster. All propagations share it; each write
// reserves an interval according to the rate of its own propagation.
type pace struct {
	mu   sync.Mutex
	next time.Time
}

// wait waits until the next write may begin. If ctx ends first, it returns its cause.
func (p *pace) wait(ctx context.Context, perSecond int) error {
	now := time.Now()
	p.mu.Lock()
	at := now
	if p.next.After(now) {
		at = p.next
	}
	p.next = at.Add(time.Second / time.Duration(max(perSecond, 1)))
	p.mu.Unlock()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
