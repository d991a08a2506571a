package watch

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/c785c783/piped/piped/cluster"
)

// The delays between requests to a cluster that does not answer, doubled each time.
const (
	minReconnectDelay = 500 * time.Millisecond
	maxReconnectDelay = 5 * time.Second
)

// newInformer returns an informer that has not been started. It never resyncs; a caller that
// needs a handler to run without an event calls Watch.Enqueue. ended is called with the
// result of each request, and with ErrDisconnected when a watch ends.
func newInformer(c *cluster.Cluster, r Resource, ended func(context.Context, error)) (cache.SharedIndexInformer, error) {
	from, err := sourceOf(c, r)
	if err != nil {
		return nil, err
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = r.Selector
			return retryUnanswered(ctx, ended, func() (runtime.Object, error) { return from.list(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = r.Selector
			w, err := retryUnanswered(ctx, ended, func() (watch.Interface, error) { return from.watch(ctx, o) })
			if err != nil {
				return nil, untyped(err, o)
			}
			return notifyingWatch{w, func() { ended(ctx, ErrDisconnected) }}, nil
		},
	}
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, from.client), from.example,
		cache.SharedIndexInformerOptions{Indexers: r.Indexes, ObjectDescription: r.GroupVersionResource.String()}), nil
}

// retryUnanswered repeats a request while the API server does not answer. The reflector's
// own backoff grows to one minute, and the cache would stay stale for that time after an
// outage.
func retryUnanswered[T any](ctx context.Context, ended func(context.Context, error), request func() (T, error)) (T, error) {
	for delay := minReconnectDelay; ; delay = min(2*delay, maxReconnectDelay) {
		answer, err := request()
		ended(ctx, err)
		if err == nil || !unanswered(err) {
			return answer, err
		}
		again := time.NewTimer(wait.Jitter(delay, 0.5))
		select {
		case <-ctx.Done():
			again.Stop()
			return answer, err
		case <-again.C:
		}
	}
}

// unanswered reports whether a request failed without a response from a server.
func unanswered(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
}

// notifyingWatch is a watch that calls over when the reflector stops it, which it also does
// after the connection has ended.
type notifyingWatch struct {
	watch.Interface
	over func()
}

func (f notifyingWatch) Stop() {
	f.Interface.Stop()
	f.over()
}

// source lists and watches the objects of a resource for an informer. client shows the
// informer which list semantics are supported.
type source struct {
	client  any
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// sourceOf returns the source of a resource in the form that r requests: typed, metadata
// only or unstructured.
func sourceOf(c *cluster.Cluster, r Resource) (source, error) {
	switch {
	case r.Typed != nil:
		return typedSource(c, r)
	case r.Metadata:
		resource := c.Metadata().Resource(r.GroupVersionResource).Namespace(r.Namespace)
		return source{c.Metadata(), &metav1.PartialObjectMetadata{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, o)
		}, resource.Watch}, nil
	}
	resource := c.Dynamic().Resource(r.GroupVersionResource).Namespace(r.Namespace)
	return source{c.Dynamic(), &unstructured.Unstructured{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, o)
	}, resource.Watch}, nil
}

// typedSource returns a source of objects of the Go type r.Typed.
func typedSource(c *cluster.Cluster, r Resource) (source, error) {
	client, err := c.GroupClient(r.GroupVersion())
	if err != nil {
		return source{}, err
	}
	request := func(o metav1.ListOptions) *rest.Request {
		return client.Get().NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(r.Resource).VersionedParams(&o, scheme.ParameterCodec)
	}
	return source{client, r.Typed, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return request(o).Do(ctx).Get()
	}, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.Watch = true
		return request(o).Watch(ctx)
	}}, nil
}

// untyped hides the type of certain errors of a watch that streams the initial state. On a
// refused connection or too many requests, the reflector would sleep for up to one minute
// and ignore the end of its context. For an error of any other type it stops sleeping when
// its context ends.
func untyped(err error, o metav1.ListOptions) error {
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	if initial && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		return errors.New(err.Error())
	}
	return err
}
