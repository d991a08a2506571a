package live

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
)

// The delays of discovery.
const (
	minRefreshInterval = time.Second      // between two discoveries of all kinds
	minRetryDelay      = time.Second      // for a kind that was not found, doubled each time
	maxRetryDelay      = 30 * time.Second // for such a kind, and between two syncs
)

// definitionsResource is the resource of CustomResourceDefinitions.
var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// memberKind is one kind of object that Members caches.
type memberKind struct {
	gvk        schema.GroupVersionKind // from the first Follow
	namespaces map[string]bool         // of the objects passed to Follow, "" for cluster-scoped ones

	served      *cluster.ServedKind     // how the cluster serves it; nil while unknown
	byNamespace bool                    // the agent may not watch it in the whole cluster
	watches     map[string]*watch.Watch // by namespace, "" for all

	since    time.Time // when it became unknown or unwatched
	problem  error     // why it is unknown
	attempts int       // failed discoveries
	next     time.Time // when to discover it again
}

// watchFor returns the watch that covers a namespace, nil if there is none.
func (k *memberKind) watchFor(namespace string) *watch.Watch {
	if k.byNamespace {
		return k.watches[namespace]
	}
	return k.watches[""]
}

// wanted returns the namespaces to watch; "" stands for all.
func (k *memberKind) wanted() map[string]bool {
	if k.byNamespace {
		return k.namespaces
	}
	return map[string]bool{"": true}
}

// watched returns the kind in the version that is watched, or in that of the first Follow if
// it is not served.
func (k *memberKind) watched() schema.GroupVersionKind {
	if k.served == nil {
		return k.gvk
	}
	return k.served.GroupVersion().WithKind(k.gvk.Kind)
}

// resource returns the name of the resource for messages.
func (k *memberKind) resource() string {
	if k.served == nil {
		return k.gvk.GroupKind().String()
	}
	return k.served.GroupResource().String()
}

// endWatches ends the watches of the kind.
func (k *memberKind) endWatches() {
	for namespace, w := range k.watches {
		w.End()
		delete(k.watches, namespace)
	}
}

// backOff schedules the next discovery of the kind with exponential backoff.
func (k *memberKind) backOff(now time.Time) {
	delay := min(minRetryDelay<<min(k.attempts, 10), maxRetryDelay)
	k.attempts++
	k.next = now.Add(delay)
}

// run is the supervisor. Until ctx ends it discovers how the cluster serves the kinds, and
// starts and ends their watches.
func (m *Members) run(ctx context.Context) {
	m.watchDefinitions(ctx)
	timer := time.NewTimer(maxRetryDelay)
	defer timer.Stop()
	for {
		timer.Reset(m.sync(ctx))
		select {
		case <-ctx.Done():
			return
		case <-m.syncRequested:
		case <-timer.C:
		}
	}
}

// sync starts and ends watches according to Follow and to the kinds that the cluster serves.
// It returns the longest time until the next sync.
func (m *Members) sync(ctx context.Context) time.Duration {
	m.resolve(ctx)
	m.mu.Lock()
	m.startWatches(ctx)
	m.fallBack(ctx)
	changed := m.readinessChanged()
	next := m.nextSync()
	m.mu.Unlock()
	if changed && ctx.Err() == nil {
		m.wake("")
	}
	return next
}

// watchDefinitions watches CustomResourceDefinitions. Without the right to do that, new
// kinds are found by periodic discovery only.
func (m *Members) watchDefinitions(ctx context.Context) {
	w, err := m.controller.Watch(watch.Resource{
		GroupVersionResource: definitionsResource, Metadata: true, StateChanged: m.requestSync,
		Transform: func(obj, _ any) (any, error) {
			if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
				return &metav1.PartialObjectMetadata{ObjectMeta: watch.MetaOf(o)}, nil
			}
			return obj, nil
		},
	})
	if err == nil {
		err = w.Notify(func(_, _ any) { m.definitionsChanged() })
	}
	if err != nil {
		m.cluster.Logger().WarnContext(ctx, "cannot watch CustomResourceDefinitions; new kinds are found later", "error", err)
		return
	}
	m.mu.Lock()
	m.definitions = w
	m.mu.Unlock()
}

// definitionsChanged makes the supervisor discover all kinds again.
func (m *Members) definitionsChanged() {
	m.mu.Lock()
	m.stale = true
	for _, k := range m.kinds {
		k.attempts = 0
	}
	m.mu.Unlock()
	m.requestSync()
}

// resolve discovers how the cluster serves the kinds: those unknown so far or, after a
// change of definitions, all of them.
func (m *Members) resolve(ctx context.Context) {
	now := m.cluster.Now()
	m.mu.Lock()
	stale := m.stale && now.Sub(m.renewed) >= minRefreshInterval
	var due []*memberKind
	renew := stale
	for _, k := range m.kinds {
		if k.served != nil && !stale || k.served == nil && !stale && now.Before(k.next) {
			continue
		}
		due = append(due, k)
		if _, err := m.cluster.CachedKind(k.gvk); err != nil {
			renew = true
		}
	}
	if renew {
		m.renewed = now
	}
	if stale {
		m.stale = false
	}
	m.mu.Unlock()

	var err error
	if renew {
		err = m.cluster.RefreshKinds(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale = m.stale || stale && err != nil
	for _, k := range due {
		m.setServed(ctx, k, err)
	}
}

// setServed records how the cluster serves a kind, or why that is unknown. failed is the
// error of the discovery, nil if it succeeded. m.mu is held.
func (m *Members) setServed(ctx context.Context, k *memberKind, failed error) {
	served, err := cluster.ServedKind{}, failed
	if failed == nil {
		served, err = m.cluster.CachedKind(k.gvk)
	}
	switch {
	case err == nil:
		k.problem = nil
		if k.served == nil || *k.served != served {
			k.endWatches()
			k.served, k.attempts = &served, 0
		}
		return
	case errors.Is(err, cluster.ErrUnknownKind):
		if k.served != nil {
			m.cluster.Logger().InfoContext(ctx, "the cluster serves a kind no longer", "kind", k.gvk.GroupKind().String())
		}
		k.endWatches()
		k.served = nil
		err = deploy.Errorf(deploy.NotFound, "%s serves no kind %s of %s: it is not defined, or its definition was removed", m.cluster, k.gvk.Kind, k.gvk.GroupVersion())
	case k.served != nil:
		return // its watches continue
	default:
		err = deploy.Errorf(deploy.Unavailable, "find how objects of kind %s are served: %w", k.gvk.Kind, m.cluster.Classify(err))
	}
	now := m.cluster.Now()
	if k.problem == nil || deploy.KindOf(k.problem) != deploy.KindOf(err) {
		k.since = now
	}
	k.problem = err
	k.backOff(now)
}

// startWatches starts the missing watches. m.mu is held.
func (m *Members) startWatches(ctx context.Context) {
	for _, k := range m.kinds {
		if k.served == nil {
			continue
		}
		for namespace := range k.wanted() {
			if k.watches[namespace] != nil {
				continue
			}
			if err := m.watch(k, namespace); err != nil {
				m.cluster.Logger().WarnContext(ctx, "cannot watch objects; retrying", "error", err)
			}
		}
	}
}

// fallBack ends watches that the API server forbids. A kind that the agent may not watch in
// the whole cluster is then watched by namespace. fallBack also schedules a discovery for
// kinds whose watch fails with NotFound. m.mu is held.
func (m *Members) fallBack(ctx context.Context) {
	now := m.cluster.Now()
	if m.definitions != nil {
		if _, err := m.definitions.State(); apierrors.IsForbidden(err) {
			m.cluster.Logger().InfoContext(ctx, "the agent may not watch CustomResourceDefinitions; new kinds are found later")
			m.definitions.End()
			m.definitions = nil
		}
	}
	for _, k := range m.kinds {
		for namespace, w := range k.watches {
			_, err := w.State()
			switch {
			case apierrors.IsForbidden(err) && namespace == "" && k.served.Namespaced:
				m.cluster.Logger().InfoContext(ctx, "the agent may not watch a kind in the whole cluster; it is watched by namespace", "resource", k.resource())
				k.endWatches()
				k.byNamespace, k.since = true, now
				m.requestSync()
			case apierrors.IsNotFound(err) && !now.Before(k.next):
				k.backOff(now)
				m.stale = true
				m.requestSync()
			}
		}
	}
}

// readinessChanged reports whether Ready has begun or ceased to return an error for some
// objects since the last call. m.mu is held.
func (m *Members) readinessChanged() bool {
	ready := map[string]bool{}
	for kind, k := range m.kinds {
		for namespace := range k.wanted() {
			w := k.watches[namespace]
			ok := k.problem == nil && w != nil
			if ok {
				_, err := m.trouble(w)
				ok = err == nil
			}
			ready[kind.String()+" "+namespace] = ok
		}
	}
	changed := false
	for key, ok := range ready {
		changed = changed || ok != m.wasReady[key]
	}
	m.wasReady = ready
	return changed
}

// nextSync returns the time until the next sync. m.mu is held.
func (m *Members) nextSync() time.Duration {
	now, next := m.cluster.Now(), maxRetryDelay
	sooner := func(at time.Time) {
		if wait := at.Sub(now); wait > 0 {
			next = min(next, wait)
		}
	}
	if m.stale {
		sooner(m.renewed.Add(minRefreshInterval))
	}
	for _, k := range m.kinds {
		if k.served == nil {
			sooner(k.next)
		}
		for _, w := range k.watches {
			if since, err := w.State(); err != nil {
				sooner(since.Add(gracePeriod))
				sooner(k.next)
			}
		}
	}
	return next
}
