package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes/rollout"
)

const (
	// finishPoll and finishPollMax bound how often something that runs is looked at.
	finishPoll    = 100 * time.Millisecond
	finishPollMax = 2 * time.Second
	// beginWithin is how long what should run may take to begin, and to go on when
	// none of its pods is ready.
	beginWithin = 10 * time.Minute
)

// RunsToEnd reports whether an object does its work once and ends: a Job, and a
// Pod that is not started again.
func RunsToEnd(u *unstructured.Unstructured) bool {
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return true
	case schema.GroupKind{Kind: "Pod"}:
		policy, _, _ := unstructured.NestedString(u.Object, "spec", "restartPolicy")
		return policy == "Never" || policy == "OnFailure"
	}
	return false
}

// run is how far an object that runs to its end is.
type run struct {
	ended  bool
	failed string // why it ended badly; "" when it did not
	says   string // for a person, while it has not ended
	busy   bool   // a pod of it works: nobody knows how long that takes
}

// AwaitFinished waits until the Job or Pod that ref names has ended, and tells log
// how it goes on. The object is that of uid: when that is gone, nobody knows how
// it ended. What runs may take as long as ctx lasts; what has not begun, or stands
// still, ten minutes. The error is Invalid and says why it failed, by pod where
// the API server knows; when ctx ends, it is its cause.
func (c *Cluster) AwaitFinished(ctx context.Context, ref deploy.ObjectRef, uid string, log deploy.StageLog) error {
	resource, err := c.discovery.lookupKind(ctx, gvkOf(ref))
	if err != nil {
		return fmt.Errorf("wait for %s: %w", ref, c.Classify(err))
	}
	pause, last, since := finishPoll, "", c.now()
	for {
		var u *unstructured.Unstructured
		err := c.retry(ctx, c.sayOnce(log), func(ctx context.Context) (err error) {
			u, err = c.objectsOf(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			return err
		})
		if apierrors.IsNotFound(err) || err == nil && string(u.GetUID()) != uid {
			return deploy.Errorf(deploy.Invalid, "%s was deleted before its end was seen", ref)
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", ref, c.Classify(err))
		}
		switch now := runOf(u); {
		case now.ended && now.failed == "":
			log.Successf("%s is complete", ref)
			return nil
		case now.ended:
			return deploy.Errorf(deploy.Invalid, "%s failed: %s%s", ref, now.failed, c.troubleOf(ctx, u))
		case now.says != last:
			log.Infof("%s: %s", ref, now.says)
			pause, last, since = finishPoll, now.says, c.now()
		case !now.busy && c.now().Sub(since) > beginWithin:
			return deploy.Errorf(deploy.Invalid, "%s has not gone on for %s: %s%s", ref, beginWithin, now.says, c.troubleOf(ctx, u))
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("%w while %s stood at: %s", err, ref, last)
		}
		pause = min(2*pause, finishPollMax)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// runOf says how far a Job or Pod is.
func runOf(u *unstructured.Unstructured) run {
	if u.GetKind() == "Pod" {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		message, _, _ := unstructured.NestedString(u.Object, "status", "message")
		if phase == string(corev1.PodFailed) {
			return run{ended: true, failed: strings.TrimSuffix("it ended with an error: "+message, ": ")}
		}
		return run{ended: phase == string(corev1.PodSucceeded), says: "pod is " + phase, busy: phase == string(corev1.PodRunning)}
	}
	count := func(field string) int64 {
		n, _, _ := unstructured.NestedInt64(u.Object, "status", field)
		return n
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	suspended := false
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Complete":
			return run{ended: true}
		case "Failed":
			return run{ended: true, failed: fmt.Sprintf("%v: %v", condition["reason"], condition["message"])}
		case "Suspended":
			suspended = true
		}
	}
	says := fmt.Sprintf("%d pods active, %d succeeded, %d failed", count("active"), count("succeeded"), count("failed"))
	if suspended {
		says = "it is suspended; resume it to go on"
	}
	return run{says: says, busy: count("ready") > 0}
}

// troubleOf says what is wrong with the pods of a Job, or with a Pod, as far as
// the API server knows: "" when it does not.
func (c *Cluster) troubleOf(ctx context.Context, u *unstructured.Unstructured) string {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + u.GetName()}
	if u.GetKind() != "Pod" {
		options = metav1.ListOptions{LabelSelector: "batch.kubernetes.io/controller-uid=" + string(u.GetUID())}
	}
	list, err := c.typed.CoreV1().Pods(u.GetNamespace()).List(ctx, options)
	if err != nil {
		return ""
	}
	troubles := rollout.Explain(list.Items, nil, c.now())
	if len(troubles) == 0 {
		return ""
	}
	return "; " + troubles[0].String()
}
