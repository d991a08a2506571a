package kubernetes

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// informer makes an informer that has not been started. It resyncs never: who
// needs a second look asks for it.
func (c *Cluster) informer(r Watched) cache.SharedIndexInformer {
	var client any = c.dynamic
	var example runtime.Object = &unstructured.Unstructured{}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.dynamic.Resource(r.GroupVersionResource).List(ctx, o)
	}
	open := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return c.dynamic.Resource(r.GroupVersionResource).Watch(ctx, o)
	}
	if r.Metadata {
		client, example = c.metadata, &metav1.PartialObjectMetadata{}
		list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.metadata.Resource(r.GroupVersionResource).List(ctx, o)
		}
		open = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.metadata.Resource(r.GroupVersionResource).Watch(ctx, o)
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = r.Selector
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = r.Selector
			w, err := open(ctx, o)
			return w, stoppable(err, o)
		},
	}
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client), example,
		cache.SharedIndexInformerOptions{Indexers: r.Indexes, ObjectDescription: r.GroupVersionResource.String()})
}

// stoppable hides what some errors of a watch that was to bring the initial state
// are: to a refused connection or too many requests the reflector would answer by
// a sleep of up to a minute that nothing ends. Any other error it reports, and
// then sleeps until it is stopped.
func stoppable(err error, o metav1.ListOptions) error {
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	if initial && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		return errors.New(err.Error())
	}
	return err
}
