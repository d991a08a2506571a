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

// lifecyclePrefix and the name of a life cycle form its finalizer, and the annotation that
// records the success of Create.
const lifecyclePrefix = "lifecycle.pipecd.dev/"

// Lifecycle manages something outside of an object from the object's creation to its
// deletion. Its methods receive the cached object, which must contain finalizers and
// annotations. They must be idempotent: they are called again after an error, and after a
// crash before the success was recorded.
type Lifecycle interface {
	// Create is called until it has succeeded. The success is recorded on the object, so no
	// later start of the agent calls it again. The finalizer is set before the first call,
	// so that Remove is called even if Create failed.
	Create(ctx context.Context, obj metav1.Object) error
	// Update is called after Create, after every change of the object, and once
	// after each start.
	Update(ctx context.Context, obj metav1.Object) error
	// Remove is called when the object is being deleted, even if Create never
	// succeeded. The object is gone only after Remove has succeeded.
	Remove(ctx context.Context, obj metav1.Object) error
}

// HandleLifecycle adds a life cycle as the handler of that name (see Handle). It sets a
// finalizer on every object of the watch. The watch should therefore have a Selector, and
// the finalizers of a name that is no longer used must be removed. It is for resources that
// a program embedding this package manages outside of objects; rollouts are watched by plain
// handlers.
func (w *Watch) HandleLifecycle(name string, l Lifecycle) error {
	h := &lifecycle{Lifecycle: l, watch: w, mark: lifecyclePrefix + name}
	return w.Handle(name, h.reconcile)
}

// lifecycle calls a Lifecycle for the objects of a watch.
type lifecycle struct {
	Lifecycle
	watch *Watch
	mark  string // finalizer and annotation
}

// reconcile performs the next step for an object. The step writes to the object, and the
// event of that write triggers the step after it.
func (h *lifecycle) reconcile(ctx context.Context, key types.NamespacedName) error {
	obj, ok := h.watch.Get(key).(metav1.Object)
	if !ok {
		return nil // deleted, without our finalizer
	}
	deleting, held := obj.GetDeletionTimestamp() != nil, slices.Contains(obj.GetFinalizers(), h.mark)
	_, created := obj.GetAnnotations()[h.mark]
	switch {
	case deleting && !held:
		return nil
	case !deleting && held && created:
		return h.Update(ctx, obj)
	}
	// Create and Remove require the live state, because the cache may be stale.
	live, err := h.live(ctx, obj)
	if err != nil || live == nil || live.ResourceVersion != obj.GetResourceVersion() {
		return err // a newer state has its own event
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

// release removes the finalizer.
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

// live reads the object's metadata from the API server; nil when it is gone or was
// replaced under its name.
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

// patch changes the metadata of the object with this UID, unless it is gone.
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
