package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"
)

// lifecyclePrefix, with the name of a life cycle, is the finalizer by which it
// holds an object, and the annotation that says that Create has succeeded.
const lifecyclePrefix = "lifecycle.pipecd.dev/"

// Lifecycle is what goes with an object from its creation to its end: something
// outside the object that is made, kept in step with it, and taken down again. Its
// methods get the object as the Watch keeps it, with finalizers and annotations,
// and must be idempotent: after an error, or after a crash before the success was
// noted, they are called again.
type Lifecycle interface {
	// Create is called until it has succeeded, which is then noted on the object:
	// no later start of the agent calls it again. The object is held from before
	// the first call, so that Remove follows whatever Create began.
	Create(ctx context.Context, obj metav1.Object) error
	// Update is called after Create, after every change of the object, and once
	// after each start.
	Update(ctx context.Context, obj metav1.Object) error
	// Remove is called when the object is being deleted, even if Create never
	// succeeded. The object is gone only after Remove has succeeded.
	Remove(ctx context.Context, obj metav1.Object) error
}

// HandleLifecycle adds a life cycle as a handler of the name, with all that Handle
// says of it. Every object of the watch is held by a finalizer: a watch that is not
// limited by a Selector is hardly right for it, and whoever ends the use of a name
// for good has to take its finalizers away. It serves what an agent embedding this
// package keeps outside of objects; rollouts need no memory on the object and are
// watched by plain handlers.
func (w *Watch) HandleLifecycle(name string, l Lifecycle) error {
	h := &lifecycle{Lifecycle: l, watch: w, mark: lifecyclePrefix + name}
	return w.Handle(name, h.reconcile)
}

// lifecycle is a Lifecycle on a watch.
type lifecycle struct {
	Lifecycle
	watch *Watch
	mark  string // finalizer and annotation
}

// reconcile takes an object one step on in its life. The change that this makes to the
// object brings the next call.
func (h *lifecycle) reconcile(ctx context.Context, key types.NamespacedName) error {
	obj, ok := h.watch.Get(key).(metav1.Object)
	if !ok {
		return nil // gone, and not held when it went
	}
	deleting, held := obj.GetDeletionTimestamp() != nil, slices.Contains(obj.GetFinalizers(), h.mark)
	_, created := obj.GetAnnotations()[h.mark]
	switch {
	case deleting && !held:
		return nil
	case !deleting && held && created:
		return h.Update(ctx, obj)
	}
	// What is done once is not decided on what a cache remembers.
	live, err := h.live(ctx, obj)
	if err != nil || live == nil || live.ResourceVersion != obj.GetResourceVersion() {
		return err // the newer state is on its way here
	}
	switch {
	case deleting:
		if err := h.Remove(ctx, obj); err != nil {
			return err
		}
		return h.release(ctx, obj)
	case !held:
		return h.patch(ctx, obj, map[string]any{"finalizers": append(slices.Clone(obj.GetFinalizers()), h.mark), "resourceVersion": obj.GetResourceVersion()})
	}
	if err := h.Create(ctx, obj); err != nil {
		return err
	}
	return h.patch(ctx, obj, map[string]any{"annotations": map[string]any{h.mark: "created"}})
}

// release lets the object go.
func (h *lifecycle) release(ctx context.Context, obj metav1.Object) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := h.live(ctx, obj)
		if err != nil || live == nil {
			return err
		}
		left := slices.DeleteFunc(live.Finalizers, func(f string) bool { return f == h.mark })
		return h.patch(ctx, obj, map[string]any{"finalizers": left, "resourceVersion": live.ResourceVersion})
	})
}

// live reads the object's metadata from the API server; nil when it is gone, or
// another one has its name.
func (h *lifecycle) live(ctx context.Context, obj metav1.Object) (*metav1.PartialObjectMetadata, error) {
	live, err := h.client(obj).Get(ctx, obj.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != obj.GetUID():
		return nil, nil
	case err != nil:
		return nil, h.watch.controller.cluster.Classify(fmt.Errorf("read %s/%s: %w", obj.GetNamespace(), obj.GetName(), err))
	}
	return live, nil
}

// patch changes the metadata of this very object, unless it is gone.
func (h *lifecycle) patch(ctx context.Context, obj metav1.Object, change map[string]any) error {
	change["uid"] = obj.GetUID()
	body, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode a change of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	_, err = h.client(obj).Patch(ctx, obj.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return h.watch.controller.cluster.Classify(fmt.Errorf("note on %s/%s how far its life cycle is: %w", obj.GetNamespace(), obj.GetName(), err))
	}
	return nil
}

func (h *lifecycle) client(obj metav1.Object) metadata.ResourceInterface {
	return h.watch.controller.cluster.Metadata().Resource(h.watch.resource.GroupVersionResource).Namespace(obj.GetNamespace())
}
