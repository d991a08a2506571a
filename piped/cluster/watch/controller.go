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

// Resource says what a Controller watches, and what it keeps of it.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // "" watches all, and is the only choice for cluster-scoped resources
	Selector  string // label selector; "" watches all
	Metadata  bool   // watch metadata only; objects are then PartialObjectMetadata

	// Typed, when set, is an object of the resource's Go type, which has a
	// protobuf form: objects are then of that type, without the fields it does not
	// know, and cost a fraction of unstructured ones.
	Typed runtime.Object

	// Transform reduces an object before it is kept. The result must have
	// object metadata with namespace, name and resource version. An object it has
	// made already must be returned as it is. Kept is what it made of an older
	// state of the same object, nil if nothing is kept of one.
	Transform func(obj, kept any) (any, error)
	// Indexes finds objects by the keys these functions return.
	Indexes cache.Indexers
	// StateChanged, when set, is called when Watch.State turns from good to bad or back. It
	// must return at once.
	StateChanged func()
}

// Handler acts on an object by its key, whatever happened to it; the object may
// be gone. It must be idempotent. After an error it is called again with a
// growing delay.
type Handler func(ctx context.Context, key types.NamespacedName) error

// Controller keeps caches of a cluster's resources and calls handlers when
// objects change. There is one informer per resource (and selector), shared by
// all users and started on first use. Events only enqueue the object's key: a
// handler never sees an event, and changes that come together are handled once.
// Each handler has its own queue, so that one that fails or is slow neither
// delays another nor makes it run again.
//
// A Controller is safe for concurrent use. Nothing happens until Run.
type Controller struct {
	cluster *cluster.Cluster
	log     *slog.Logger

	mu      sync.Mutex
	watches map[string]*Watch
	pending []func(context.Context) // to be started by Run
	added   chan struct{}
}

// New makes a controller for a cluster.
func New(c *cluster.Cluster) *Controller {
	return &Controller{cluster: c, log: c.Logger(), watches: map[string]*Watch{}, added: make(chan struct{}, 1)}
}

// Run starts what is in use and whatever comes into use later, until ctx ends.
// It returns nil after everything it started has ended: handlers that run are
// waited for, and what is queued for them is left. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, start := range c.takePending() {
			running.Go(func() { start(ctx) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.added:
		}
	}
}

// Go has Run run f.
func (c *Controller) Go(f func(context.Context)) {
	c.mu.Lock()
	c.pending = append(c.pending, f)
	c.mu.Unlock()
	select {
	case c.added <- struct{}{}:
	default:
	}
}

func (c *Controller) takePending() []func(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := c.pending
	c.pending = nil
	return pending
}

// id tells apart what is watched.
func (r Resource) id() string {
	return fmt.Sprintf("%s %q %s metadata=%t typed=%t", r.GroupVersionResource, r.Namespace, r.Selector, r.Metadata, r.Typed != nil)
}

// Watch returns the watch of a resource and starts it if it is the first use. A
// resource that is watched already keeps the transform and indexes it has.
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

func (c *Controller) newWatch(r Resource) (*Watch, error) {
	w := &Watch{resource: r, controller: c, handlers: map[string]keyQueue{}, badSince: c.cluster.Now(), done: make(chan struct{})}
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

// transform calls the resource's Transform.
func (w *Watch) transform(obj any) (any, error) {
	var kept any
	if name, err := cache.ObjectToName(obj); err == nil {
		kept = w.Get(name.AsNamespacedName())
	}
	return w.resource.Transform(obj, kept)
}

// keyQueue holds the keys that a handler is to be called for.
type keyQueue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// Watch is one watched resource of a cluster.
type Watch struct {
	resource   Resource
	controller *Controller
	informer   cache.SharedIndexInformer

	mu       sync.Mutex
	handlers map[string]keyQueue
	lastErr  string

	// See State and End.
	bad      error
	badSince time.Time
	ended    bool
	cancels  []context.CancelFunc
	done     chan struct{} // closed by End
}

// Handle adds a handler; it is called for every object there is and for every
// change from now on. A handler of a name that is there already is not added
// again.
func (w *Watch) Handle(name string, h Handler) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handlers[name] != nil {
		return nil
	}
	q := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minRetryDelay, maxRetryDelay))
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			q.Add(key.AsNamespacedName())
		}
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	})
	if err != nil {
		q.ShutDown()
		return fmt.Errorf("handle %s with %s: %w", w.resource.Resource, name, err)
	}
	w.handlers[name] = q
	w.controller.Go(w.untilEnd(func(ctx context.Context) { w.work(ctx, name, q, h) }))
	return nil
}

// Enqueue has the handler of a name called for a key although nothing was seen to happen
// to it. A name that no handler has is passed over.
func (w *Watch) Enqueue(name string, key types.NamespacedName) {
	w.mu.Lock()
	q := w.handlers[name]
	w.mu.Unlock()
	if q != nil {
		q.Add(key)
	}
}

// work calls h for the keys of q until ctx ends.
func (w *Watch) work(ctx context.Context, name string, q keyQueue, h Handler) {
	defer q.ShutDown() // ctx may be over before AfterFunc has come to it
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	for {
		key, closed := q.Get()
		if closed || ctx.Err() != nil { // a queue that is shut down gives what it has
			return
		}
		if err := h(ctx, key); err != nil && ctx.Err() == nil {
			w.controller.log.WarnContext(ctx, "handler failed, will try again",
				"resource", w.resource.Resource, "handler", name, "object", key.String(), "error", err)
			q.AddRateLimited(key)
		} else {
			q.Forget(key)
		}
		q.Done(key)
	}
}

// Filled returns nil once the cache has held everything the cluster had, and
// otherwise errEnded after End or, when ctx ends, an error of kind Unavailable.
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

// Get returns the kept object of a key, or nil.
func (w *Watch) Get(key types.NamespacedName) any {
	name := cache.ObjectName{Namespace: key.Namespace, Name: key.Name}
	obj, exists, err := w.informer.GetIndexer().GetByKey(name.String())
	if err != nil || !exists {
		return nil
	}
	return obj
}

// ByIndex returns the kept objects for which the named index function returned
// value.
func (w *Watch) ByIndex(index, value string) ([]any, error) {
	return w.informer.GetIndexer().ByIndex(index, value)
}

// logOutage reports whether err is one of an outage of the whole cluster, which it
// logs once, not once for each kind that is watched.
func (c *Controller) logOutage(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !deploy.IsKind(err, deploy.Unavailable) {
		return ctx.Err() != nil // the end of the agent is not worth a line either
	}
	lasts, first := c.cluster.Outage()
	if first {
		c.log.WarnContext(ctx, "cannot watch anything in the cluster, will try again", "error", err)
	}
	return lasts
}

// logFailure logs why the cluster cannot be watched, once per reason.
func (w *Watch) logFailure(ctx context.Context, _ *cache.Reflector, err error) {
	err = w.controller.cluster.Classify(err)
	w.mu.Lock()
	said := w.lastErr == err.Error()
	w.lastErr = err.Error()
	w.mu.Unlock()
	if w.controller.logOutage(ctx, err) || said || ctx.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if deploy.IsKind(err, deploy.NotFound) {
		level = slog.LevelDebug // its definition was removed, which is nobody's fault
	}
	w.controller.log.Log(ctx, level, "cannot watch, will try again", "resource", w.resource.Resource, "error", err)
}

// MetaOf returns the metadata by which a cache finds an object. A Transform retains it.
func MetaOf(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// Watched returns how many kinds of object are watched, and how many objects there
// are of them as far as is known.
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
