package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/health"
	"github.com/c785c783/piped/piped/cluster/rollout"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// healthPatience is the default of HealthRequest.Patience: the default progress deadline of a
// Deployment.
const healthPatience = 10 * time.Minute

// HealthRequest describes what AwaitHealthy waits for.
type HealthRequest struct {
	Objects []manifest.Object // resolved; those without health (HasHealth) are skipped
	Checks  []config.HealthCheck
	// Patience is how long an object may remain InProgress without any change. Default 10 min.
	Patience time.Duration
	Log      deploy.StageLog
}

// AwaitHealthy waits until every object of the request that HasHealth is health.Current. It
// returns an error that wraps an *Unhealthy per object when objects have failed, are gone, or
// have not changed for Patience, which does not apply to running Jobs and Pods. When ctx ends,
// the error wraps its cause. AwaitHealthy does not wait for workloads: package rollout
// evaluates them.
func (c *Client) AwaitHealthy(ctx context.Context, req HealthRequest) error {
	if req.Patience == 0 {
		req.Patience = healthPatience
	}
	h := &healthWait{cluster: c, req: req, lazy: map[string]bool{}}
	for _, o := range req.Objects {
		if HasHealth(o, req.Checks) {
			h.waiting = append(h.waiting, &patient{obj: o, ref: manifest.Ref(o.Unstructured)})
		}
	}
	pause := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 1 << 20, Cap: time.Second}
	for {
		if err := h.round(ctx); err != nil || len(h.waiting) == 0 {
			return err
		}
		timer := time.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w while waiting for %s", context.Cause(ctx), h.waiting[0])
		case <-timer.C:
		}
	}
}

// Unhealthy is the error of an object that does not become healthy.
type Unhealthy struct {
	Object deploy.ObjectRef
	Reason string // for users
}

// Error names the object and the reason.
func (u *Unhealthy) Error() string { return u.Object.String() + ": " + u.Reason }

// HasHealth reports whether AwaitHealthy waits for an object: it is not a workload, and its
// kind has health (health.Has).
func HasHealth(obj manifest.Object, checks []config.HealthCheck) bool {
	gvk := obj.GroupVersionKind()
	return !IsWorkload(gvk.GroupKind()) && health.Has(gvk, checks)
}

// healthWait is the state of one AwaitHealthy.
type healthWait struct {
	cluster *Client
	req     HealthRequest
	waiting []*patient
	lazy    map[string]bool // whether a storage class binds claims at first use, if read
}

// patient is an object that AwaitHealthy waits for.
type patient struct {
	obj     manifest.Object
	ref     deploy.ObjectRef
	status  health.Status
	reason  string
	version string    // the resource version at the last check
	since   time.Time // when version last changed
}

func (p *patient) String() string { return fmt.Sprintf("%s: %s", p.ref, p.reason) }

// round checks every object of h.waiting, and removes the healthy ones.
func (h *healthWait) round(ctx context.Context) error {
	errs := make([]error, len(h.waiting))
	for i, p := range h.waiting {
		errs[i] = h.check(ctx, p)
	}
	if err := together(errs); err != nil {
		return err
	}
	var left []*patient
	for _, p := range h.waiting {
		if p.status != health.Current {
			left = append(left, p)
		}
	}
	h.waiting = left
	return nil
}

// check evaluates the health of one object. It returns an error if the object has failed,
// is gone, or makes no progress.
func (h *healthWait) check(ctx context.Context, p *patient) error {
	live, err := h.cluster.readObject(ctx, p.ref)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("check %s: %w", p.ref, h.cluster.Classify(err))
	}
	if live == nil {
		return &Unhealthy{p.ref, "it was deleted before its end was seen" + ttlHint(p.obj)}
	}
	status, reason := health.Of(live, h.req.Checks)
	if status == health.InProgress && h.bindsLater(ctx, live) {
		status = health.Current
	}
	h.logChange(p, status, reason)
	if version := live.GetResourceVersion(); p.version != version || health.Working(live) {
		p.version, p.since = version, h.cluster.Now()
	}
	switch idle := h.cluster.Now().Sub(p.since); {
	case status == health.Failed:
		return &Unhealthy{p.ref, reason + h.cluster.explainPods(ctx, live)}
	case status == health.InProgress && idle >= h.req.Patience:
		return &Unhealthy{p.ref, fmt.Sprintf("%s; nothing has changed for %s%s", reason, h.req.Patience, h.cluster.explainPods(ctx, live))}
	}
	return nil
}

// ttlHint returns advice, as the end of a message, for a Job that Kubernetes may have deleted
// too soon after its end; "" for other objects.
func ttlHint(obj manifest.Object) string {
	seconds, ok := Expires(obj.Unstructured)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; its ttlSecondsAfterFinished is %d: raise it if Kubernetes was faster than the agent", seconds)
}

// RunsToEnd reports whether an object runs to completion: it is a Job or health.RunsOnce.
func RunsToEnd(u *unstructured.Unstructured) bool {
	return cluster.IsJob(u.GroupVersionKind().GroupKind()) || health.RunsOnce(u)
}

// logChange records the status and reason of an object, and logs a change of them.
func (h *healthWait) logChange(p *patient, status health.Status, reason string) {
	waited := p.status != ""
	changed := p.status != status || p.reason != reason
	p.status, p.reason = status, reason
	switch {
	case status == health.Current && waited && RunsToEnd(p.obj.Unstructured):
		h.req.Log.Successf("%s is complete", p.ref)
	case status == health.Current && waited:
		h.req.Log.Successf("%s is healthy", p.ref)
	case status == health.InProgress && changed:
		h.req.Log.Infof("Waiting for %s", p)
	}
}

// readObject reads a whole object. It returns nil without an error if the object does not
// exist. The error is unclassified.
func (c *Client) readObject(ctx context.Context, ref deploy.ObjectRef) (live *unstructured.Unstructured, err error) {
	err = c.Retry(ctx, nil, func(ctx context.Context) error {
		resource, err := c.Lookup(ctx, manifest.GVK(ref))
		if err != nil {
			return err
		}
		live, err = c.ResourceClient(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// bindsLater reports whether a live object is a claim that stays unbound until a pod uses it.
// It returns false if the claim's storage class cannot be read.
func (h *healthWait) bindsLater(ctx context.Context, live *unstructured.Unstructured) bool {
	name, ok := health.AwaitsUse(live)
	if !ok {
		return false
	}
	if lazy, known := h.lazy[name]; known {
		return lazy
	}
	class, err := h.cluster.Typed().StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	mode := class.VolumeBindingMode
	h.lazy[name] = mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer
	return h.lazy[name]
}

// explainPods returns up to two problems of a Pod or of the pods of a Job, as the end of a
// message; "" if there are none or the pods cannot be read.
func (c *Client) explainPods(ctx context.Context, live *unstructured.Unstructured) string {
	pods, err := c.PodsOf(ctx, manifest.Ref(live))
	if err != nil {
		return ""
	}
	if cluster.IsJob(live.GroupVersionKind().GroupKind()) {
		// Pods of an earlier Job of the same name have the same label.
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, live) })
	}
	var lines []string
	for _, trouble := range rollout.Explain(pods, nil, c.Now()) {
		if lines = append(lines, trouble.String()); len(lines) == 2 {
			break
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "; " + strings.Join(lines, "; ")
}
