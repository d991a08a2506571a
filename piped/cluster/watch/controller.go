package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// The delays between attempts of a handler that fails on a key.
const (
	minRetryDelay = 5 * time.Millisecond
	maxRetryDelay = 30 * time.Second
)

// Resource describes what a Controller watches and caches.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // "" watches all, and is the only choice for cluster-scoped resources
	Selector  string // label selector; "" watches all
	Metadata  bool   // watch only metadata; objects are then PartialObjectMetadata

	// Typed, when set, is an object of the resource's Go type, which must have a protobuf
	// form. Cached objects are then of that type, without fields unknown to it. Decoding
	// them costs a fraction of decoding unstructured ones.
	Typed runtime.Object

	// Transform reduces an object before it is cached. The result must have object metadata
	// with namespace, name and resource version (MetaOf). Transform must return an already
	// reduced object unchanged. cached is the cached older state of the object, nil without
	// one.
	Transform func(obj, cached any) (any, error)
	// Indexes are the index functions of Watch.ByIndex.
	Indexes cache.Indexers
	// StateChanged, when set, is called when Watch.State begins or ceases to return an
	// error. It must return at once.
	StateChanged func()
}

// Handler reconciles the object of a key after any event; the object may no longer exist. It
// must be idempotent. After an error it is called again with exponential backoff.
type Handler func(ctx context.Context, key types.NamespacedName) error

// Controller caches resources of a cluster and calls handlers when objects change. There
// is one informer per Resource, shared by all users and started on first use. Events only
// enqueue the object's key: a handler sees no event, and changes in quick succession are
// handled once. Each handler has its own queue, so that one that fails or is slow neither
// delays another nor repeats it.
//
// A Controller is safe for concurrent use. Nothing happens until Run.
type Controller struct {
	cluster *cluster.Cluster
	log     *slog.Logger

	mu      sync.Mutex
	watches map[string]*Watch
	pending []func(context.Context) // functions that Run starts
	ended   context.Context         // the context of Run after it has ended, nil before
	added   chan struct{}
}

// New returns a controller for a cluster.
func New(c *cluster.Cluster) *Controller {
	return &Controller{cluster: c, log: c.Logger(), watches: map[string]*Watch{}, added: make(chan struct{}, 1)}
}

// Run runs the informers and handlers, including those added later, until ctx ends. It
// returns nil after all running handlers have returned, and drops the keys in their queues.
// Call it once.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, start := range c.takePending() {
			running.Go(func() { start(ctx) })
		}
		select {
		case <-ctx.Done():
			for _, start := range c.end(ctx) { // they release their resources
				running.Go(func() { start(ctx) })
			}
			return nil
		case <-c.added:
		}
	}
}

// end makes Go call later functions with the ended ctx, and returns those that Run has not
// started.
func (c *Controller) end(ctx context.Context) []func(context.Context) {
	c.mu.Lock()
	c.ended = ctx
	c.mu.Unlock()
	return c.takePending()
}

// Go makes Run call f in a goroutine. After Run has ended, Go itself calls f in a goroutine
// with the ended context, so that f can release its resources.
func (c *Controller) Go(f func(context.Context)) {
	c.mu.Lock()
	ended := c.ended
	if ended == nil {
		c.pending = append(c.pending, f)
	}
	c.mu.Unlock()
	if ended != nil {
		go f(ended)
		return
	}
	select {
	case c.added <- struct{}{}:
	default:
	}
}

// takePending removes and returns the functions that Run has to start.
func (c *Controller) takePending() []func(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := c.pending
	c.pending = nil
	return pending
}

// id returns the key of the shared watch of a resource.
func (r Resource) id() string {
	return fmt.Sprintf("%s %q %s metadata=%t typed=%t", r.GroupVersionResource, r.Namespace, r.Selector, r.Metadata, r.Typed != nil)
}

// Watch returns the shared watch of a resource, started on first use. The Transform, Indexes
// and StateChanged of the first use apply.
func (c *Controller) Watch(r Resource) (*Watch, error) {
	id := r.id()
	c.mu.Lock()
	w, ok := c.watches[id]
	if ok {
		c.mu.Unlock()
		return w, nil
	}
	w, err := c.newWatch(r)
	if err == nil {
		c.watches[id] = w
	}
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", r.GroupVersionResource.Resource, err)
	}
	c.Go(w.untilEnd(w.informer.RunWithContext))
	if r.StateChanged != nil {
		c.Go(w.untilEnd(w.notifyFilled))
	}
	return w, nil
}

// newWatch returns a watch whose informer has not been started.
func (c *Controller) newWatch(r Resource) (*Watch, error) {
	w := &Watch{resource: r, controller: c, handlers: map[handlerID]keyQueue{}, badSince: c.cluster.Now(), done: make(chan struct{})}
	var err error
	if w.informer, err = newInformer(c.cluster, r, w.noteRequest); err != nil {
		return nil, err
	}
	if r.Transform != nil {
		if err := w.informer.SetTransform(w.transform); err != nil {
			return nil, err
		}
	}
	if err := w.informer.SetWatchErrorHandlerWithContext(w.logFailure); err != nil {
		return nil, err
	}
	return w, nil
}

// transform calls the Transform of the resource with the cached older state of the object.
func (w *Watch) transform(obj any) (any, error) {
	var cached any
	if name, err := cache.ObjectToName(obj); err == nil {
		cached = w.Get(name.AsNamespacedName())
	}
	return w.resource.Transform(obj, cached)
}

// keyQueue contains the keys for which a handler has to be called.
type keyQueue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// Watch is one watched resource of a cluster.
type Watch struct {
	resource   Resource
	controller *Controller
	informer   cache.SharedIndexInformer

	mu       sync.Mutex
	handlers map[handlerID]keyQueue
	lastErr  string

	// See State and End.
	bad      error
	badSince time.Time
	ended    bool
	cancels  []context.CancelFunc
	done     chan struct{} // closed by End
}

// handlerID identifies a handler of a watch. Contexts are compared by identity.
type handlerID struct {
	name   string
	during context.Context // see HandleDuring; Background for Handle
}

// Handle adds a handler, which is called for every existing object and for every change
// from now on. A second handler of the same name is not added.
func (w *Watch) Handle(name string, h Handler) error {
	return w.HandleDuring(context.Background(), name, h)
}

// HandleDuring is Handle until a context ends. The contexts of the calls are derived from it. Each
// context has its own handlers of a name.
func (w *Watch) HandleDuring(during context.Context, name string, h Handler) error {
	id := handlerID{name, during}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handlers[id] != nil {
		return nil
	}
	q := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minRetryDelay, maxRetryDelay))
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			q.Add(key.AsNamespacedName())
		}
	}
	events, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	})
	if err != nil {
		q.ShutDown()
		return fmt.Errorf("handle %s with %s: %w", w.resource.Resource, name, err)
	}
	w.handlers[id] = q
	w.controller.Go(w.untilEnd(func(ctx context.Context) {
		run, cancel := context.WithCancelCause(during)
		defer cancel(nil)
		stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		defer stop()
		w.work(run, name, q, h)
		w.drop(id, events)
	}))
	return nil
}

// drop removes a handler that has ended.
func (w *Watch) drop(id handlerID, events cache.ResourceEventHandlerRegistration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.handlers, id)
	if err := w.informer.RemoveEventHandler(events); err != nil {
		w.controller.log.Warn("cannot remove a handler", "resource", w.resource.Resource, "handler", id.name, "error", err)
	}
}

// Enqueue calls the handlers of a name for a key without an event. An unknown name is ignored.
func (w *Watch) Enqueue(name string, key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, q := range w.handlers {
		if id.name == name {
			q.Add(key)
		}
	}
}

// work calls h for the keys of q until ctx ends.
func (w *Watch) work(ctx context.Context, name string, q keyQueue, h Handler) {
	defer q.ShutDown() // in case ctx ended before AfterFunc was registered
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	for {
		key, closed := q.Get()
		if closed || ctx.Err() != nil { // a queue that was shut down still returns its keys
			return
		}
		if err := h(ctx, key); err != nil && ctx.Err() == nil && !deploy.IsKind(err, deploy.Fenced) {
			w.controller.log.WarnContext(ctx, "handler failed; retrying",
				"resource", w.resource.Resource, "handler", name, "object", key.String(), "error", err)
			q.AddRateLimited(key)
		} else {
			q.Forget(key)
		}
		q.Done(key)
	}
}

// Filled waits until the cache has once contained all objects of the cluster. It returns
// errEnded after End, and an error of kind Unavailable when ctx ends first.
func (w *Watch) Filled(ctx context.Context) error {
	select {
	case <-w.informer.HasSyncedChecker().Done():
		return nil
	case <-w.done:
		return errEnded
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	why := w.lastErr
	if why == "" {
		why = "no answer yet"
	}
	return deploy.Errorf(deploy.Unavailable, "watch %s of %s: %s", w.resource.Resource, w.controller.cluster, why)
}

// Get returns the cached object of a key, or nil.
func (w *Watch) Get(key types.NamespacedName) any {
	name := cache.ObjectName{Namespace: key.Namespace, Name: key.Name}
	obj, exists, err := w.informer.GetIndexer().GetByKey(name.String())
	if err != nil || !exists {
		return nil
	}
	return obj
}

// List returns all cached objects.
func (w *Watch) List() []any { return w.informer.GetIndexer().List() }

// ByIndex returns the cached objects for which the named index function returned value.
func (w *Watch) ByIndex(index, value string) ([]any, error) {
	return w.informer.GetIndexer().ByIndex(index, value)
}

// logOutage reports whether err belongs to an outage of the whole cluster, or to the end
// of ctx. It logs an outage once, not once per watched kind.
func (c *Controller) logOutage(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !deploy.IsKind(err, deploy.Unavailable) {
		return ctx.Err() != nil // the agent stops
	}
	lasts, first := c.cluster.Outage()
	if first {
		c.log.WarnContext(ctx, "cannot watch anything in the cluster; retrying", "error", err)
	}
	return lasts
}

// logFailure logs why the resource cannot be watched, once per reason.
func (w *Watch) logFailure(ctx context.Context, _ *cache.Reflector, err error) {
	err = w.controller.cluster.Classify(err)
	w.mu.Lock()
	repeated := w.lastErr == err.Error()
	w.lastErr = err.Error()
	w.mu.Unlock()
	if w.controller.logOutage(ctx, err) || repeated || ctx.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if deploy.IsKind(err, deploy.NotFound) {
		level = slog.LevelDebug // the definition of the kind was removed
	}
	w.controller.log.Log(ctx, level, "cannot watch a resource; retrying", "resource", w.resource.Resource, "error", err)
}

// MetaOf returns the metadata by which a cache identifies an object, for a Transform.
func MetaOf(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// Watched returns the number of watched resources, and of cached objects.
func (c *Controller) Watched() (kinds, objects int) {
	c.mu.Lock()
	watches := make([]*Watch, 0, len(c.watches))
	for _, w := range c.watches {
		watches = append(watches, w)
	}
	c.mu.Unlock()
	seen := map[string]bool{}
	for _, w := range watches {
		seen[w.resource.GroupVersionResource.String()] = true
		objects += len(w.informer.GetIndexer().ListKeys())
	}
	return len(seen), objects
}
