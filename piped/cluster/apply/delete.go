package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// concurrency bounds the concurrent requests of one apply or delete.
const concurrency = 16

// goneFor is how long a deletion waits for an object to be gone before it continues.
const goneFor = time.Minute

// podsGoneFor is goneFor for deletions that wait for pods to terminate.
const podsGoneFor = 5 * time.Minute

// Delete deletes the objects of items from the cluster, in the reverse order of applying. It
// waits until each level is gone, at most a minute, and logs the finalizers that remain then.
//
// Delete removes only the object that was applied. It skips and logs an object with another
// UID, one that is not marked as the application's and the agent's any more, and one whose
// manifest.AnnotationResourcePolicy is keep. An object that changes between read and deletion
// is read again, for the cluster's retry time. Objects that are gone already are no error. A
// failure does not prevent the deletion of other objects; the error names every failed one.
// Ended are the items whose objects are gone or no longer the application's.
func (c *Client) Delete(ctx context.Context, pipedID string, items []deploy.InventoryItem, log deploy.StageLog) (ended []deploy.InventoryItem, err error) {
	ended, left := deletion{c, pipedID, log, metav1.DeletePropagationBackground, goneFor, nil}.run(ctx, items)
	return ended, failuresOf(left)
}

// DeleteWithPods is Delete with foreground propagation: a workload is gone only when its pods
// are gone. It waits at most five minutes for each level.
func (c *Client) DeleteWithPods(ctx context.Context, pipedID string, items []deploy.InventoryItem, log deploy.StageLog) (ended []deploy.InventoryItem, err error) {
	ended, left := deletion{c, pipedID, log, metav1.DeletePropagationForeground, podsGoneFor, nil}.run(ctx, items)
	return ended, failuresOf(left)
}

// RemoveLevel is DeleteWithPods for the objects of one level of a Removal. It waits at most a
// minute. The caller calls it again for the objects in left.
func (c *Client) RemoveLevel(ctx context.Context, pipedID string, items []deploy.InventoryItem, log deploy.StageLog) (ended []deploy.InventoryItem, left []LeftObject) {
	return deletion{c, pipedID, log, metav1.DeletePropagationForeground, goneFor, nil}.run(ctx, items)
}

// LeftObject is an object that was not deleted or is still being deleted.
type LeftObject struct {
	Item   deploy.InventoryItem
	Reason string // why, for users
	Err    error  // the error of the deletion; nil when it did not fail
}

// failuresOf returns the joined errors of left, nil if there are none.
func failuresOf(left []LeftObject) error {
	errs := make([]error, len(left))
	for i, l := range left {
		if l.Err != nil {
			errs[i] = fmt.Errorf("delete %s: %w", l.Item.Object, l.Err)
		}
	}
	return together(errs)
}

// deletion is the state of one Delete.
type deletion struct {
	*Client
	pipedID     string
	log         deploy.StageLog
	propagation metav1.DeletionPropagation
	patience    time.Duration // the maximum wait for a level to be gone
	wait        func(error)   // for Retry: logs once why the deletion waits; set by run
}

// run deletes the items level by level. Each of items is either in ended or in left.
func (d deletion) run(ctx context.Context, items []deploy.InventoryItem) (ended []deploy.InventoryItem, left []LeftObject) {
	d.wait = d.LogOnce(d.log)
	groups := byLevel(items, func(i deploy.InventoryItem) schema.GroupKind { return manifest.GroupKind(i.Object) })
	slices.Reverse(groups)
	for _, group := range groups {
		remains, over := make([]LeftObject, len(group)), make([]bool, len(group))
		var g errgroup.Group
		g.SetLimit(concurrency)
		for i, item := range group {
			g.Go(func() error {
				var reason string
				var err error
				if over[i], reason, err = d.item(ctx, item); err != nil {
					reason = err.Error()
				}
				remains[i] = LeftObject{item, reason, err}
				return nil
			})
		}
		_ = g.Wait() // the errors are in remains
		for i, item := range group {
			if over[i] {
				ended = append(ended, item)
			} else {
				left = append(left, remains[i])
			}
		}
	}
	return ended, left
}

// item deletes one object and waits until it is gone. Over reports whether the object is gone
// or no longer the application's; reason explains why it remains.
func (d deletion) item(ctx context.Context, item deploy.InventoryItem) (over bool, reason string, err error) {
	var resource cluster.ServedKind
	err = d.Retry(ctx, d.wait, func(ctx context.Context) (err error) {
		resource, err = d.FindKind(ctx, manifest.GVK(item.Object))
		return err
	})
	if errors.Is(err, cluster.ErrUnknownKind) {
		return true, "", nil // the definition was deleted, and with it all its objects
	}
	if err != nil {
		return false, "", d.Classify(err)
	}
	client := d.MetadataClient(resource, item.Object.Namespace)
	err = d.RetryWrite(ctx, d.wait, func(ctx context.Context) (err error) {
		reason, over, err = d.own(ctx, client, item)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		d.log.Infof("%s is gone already", item.Object)
		return true, "", nil
	case err != nil:
		return false, "", d.Classify(err)
	case reason != "":
		d.log.Infof("left %s alone: %s", item.Object, reason)
		return over, reason, nil
	}
	return d.awaitGone(ctx, client, item)
}

// own reads the object and deletes it unless standing returns a reason to leave it; left and
// over are then those of standing. The deletion is a compare-and-swap: if the object has
// changed since it was read, the error is a conflict, which RetryWrite retries.
func (d deletion) own(ctx context.Context, client metadata.ResourceInterface, item deploy.InventoryItem) (left string, over bool, err error) {
	live, err := client.Get(ctx, item.Object.Name, metav1.GetOptions{})
	if err != nil {
		return "", false, err
	}
	if left, over = standing(live, d.pipedID, item); left != "" {
		return left, over, nil
	}
	as := metav1.Preconditions{UID: &live.UID}
	if live.ResourceVersion != "" { // objects of extension API servers may have none
		as.ResourceVersion = &live.ResourceVersion
	}
	return "", false, client.Delete(ctx, item.Object.Name, metav1.DeleteOptions{Preconditions: &as, PropagationPolicy: &d.propagation})
}

// standing returns the reason why a live object must not be deleted, "" if it may be. Over
// reports that the object is not the applied one, or is not the application's any more; it
// is false if the object is the application's and its resource policy is keep.
func standing(live *metav1.PartialObjectMetadata, pipedID string, item deploy.InventoryItem) (left string, over bool) {
	if string(live.UID) != item.UID {
		return "another object has taken its name", true
	}
	for _, mark := range []struct{ what, key, is, want string }{
		{"annotation", manifest.AnnotationApplication, live.Annotations[manifest.AnnotationApplication], item.ApplicationID},
		{"label", manifest.LabelApplication, live.Labels[manifest.LabelApplication], item.ApplicationID},
		{"annotation", manifest.AnnotationPiped, live.Annotations[manifest.AnnotationPiped], pipedID},
	} {
		if mark.is != mark.want {
			return fmt.Sprintf("it is not application %s's any more (%s %s is %q instead of %q)", item.ApplicationID, mark.what, mark.key, mark.is, mark.want), true
		}
	}
	if live.Annotations[manifest.AnnotationResourcePolicy] == manifest.ResourcePolicyKeep {
		return fmt.Sprintf("its annotation %s is %s; delete it by hand if it is not needed", manifest.AnnotationResourcePolicy, manifest.ResourcePolicyKeep), false
	}
	return "", false
}

// awaitGone waits until the object is gone, at most d.patience. If it is not gone then, reason
// names its finalizers. The error is only that of ctx's end.
func (d deletion) awaitGone(ctx context.Context, client metadata.ResourceInterface, item deploy.InventoryItem) (gone bool, reason string, err error) {
	var finalizers []string
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, d.patience, true, func(ctx context.Context) (bool, error) {
		live, err := client.Get(ctx, item.Object.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, nil // retried until the timeout
		}
		finalizers = live.Finalizers
		return string(live.UID) != item.UID, nil
	})
	switch {
	case err == nil:
		d.log.Infof("deleted %s", item.Object)
		return true, "", nil
	case ctx.Err() != nil:
		return false, "", fmt.Errorf("wait until it is gone: %w", context.Cause(ctx))
	}
	d.log.Infof("%s is still being deleted; it waits for its finalizers %q", item.Object, finalizers)
	return false, fmt.Sprintf("it is still being deleted and waits for its finalizers %q", finalizers), nil
}
