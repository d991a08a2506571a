package live

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// byApplication is the name of the index of members by their application label.
const byApplication = "application"

// gracePeriod is how long a watch may fail before Members.Ready reports it: connections to
// an API server end now and then, and are re-established at once.
const gracePeriod = 10 * time.Second

// errNotRead is the error of Ready for a kind without a watch.
var errNotRead = errors.New("not read yet")

// Members caches the metadata of the live objects of applications: all objects that carry
// the application label, of the kinds passed to Follow. It needs a few hundred bytes per
// object. Where the agent may not watch a kind in the whole cluster, Members watches the
// namespaces of the objects passed to Follow.
//
// A cluster may begin or cease to serve a kind at any time. Members discovers a kind that is
// not served again when a CustomResourceDefinition changes, and periodically.
//
// Members is safe for concurrent use. Nothing happens until the controller runs.
type Members struct {
	cluster       *cluster.Cluster
	controller    *watch.Controller
	wake          func(applicationID string)
	syncRequested chan struct{}

	mu    sync.RWMutex
	kinds map[schema.GroupKind]*memberKind

	// State of the supervisor (kinds.go).
	definitions *watch.Watch
	stale       bool      // the discovered kinds may be out of date
	renewed     time.Time // the last discovery
	wasReady    map[string]bool
}

// NewMembers returns Members whose caches run in controller. It calls wake with the
// application of each object that exists, is created or deleted, or changes by more than its
// status; if the application label changes, with both applications. It calls wake with ""
// when any application may be affected: when Ready begins or ceases to return an error for
// some objects. wake is called often and must return at once.
func NewMembers(c *cluster.Cluster, controller *watch.Controller, wake func(applicationID string)) *Members {
	m := &Members{
		cluster: c, controller: controller, wake: wake, syncRequested: make(chan struct{}, 1),
		kinds: map[schema.GroupKind]*memberKind{}, wasReady: map[string]bool{},
	}
	controller.Go(m.run)
	return m
}

// Follow adds the kinds of the objects to the watched ones and, where the agent may not
// watch the whole cluster, their namespaces. It is idempotent and returns at once. A kind is
// never removed, because a kind without objects costs little.
func (m *Members) Follow(objects []deploy.ObjectRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	added := false
	for _, ref := range objects {
		kind := manifest.GroupKind(ref)
		k := m.kinds[kind]
		if k == nil {
			k = &memberKind{gvk: manifest.GVK(ref), namespaces: map[string]bool{}, watches: map[string]*watch.Watch{}, since: m.cluster.Now()}
			m.kinds[kind] = k
			added = true
		}
		if !k.namespaces[ref.Namespace] {
			k.namespaces[ref.Namespace] = true
			added = added || k.byNamespace
		}
	}
	if added {
		m.requestSync()
	}
}

// Get returns the cached object with the group, kind, namespace and name of ref, whatever
// its version, and whether there is one.
func (m *Members) Get(ref deploy.ObjectRef) (Member, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k := m.kinds[manifest.GroupKind(ref)]
	if k == nil {
		return Member{}, false
	}
	w := k.watchFor(ref.Namespace)
	if w == nil {
		return Member{}, false
	}
	kept, ok := w.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}).(*cachedMember)
	if !ok {
		return Member{}, false
	}
	return kept.member(k.watched()), true
}

// Of returns the cached objects with the label of an application, in no particular order.
func (m *Members) Of(applicationID string) []Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var members []Member
	for _, k := range m.kinds {
		for _, w := range k.watches {
			found, err := w.ByIndex(byApplication, applicationID)
			if err != nil {
				continue // there is no such index: unreachable
			}
			for _, obj := range found {
				if kept, ok := obj.(*cachedMember); ok {
					members = append(members, kept.member(k.watched()))
				}
			}
		}
	}
	return members
}

// Ready returns nil if the cache that Get and Of read for this object follows the cluster.
// Otherwise it returns why it does not, and since when (zero if the kind was never passed
// to Follow): an error of kind NotFound if the cluster does not serve the kind, so that no
// such object exists; Invalid if the agent has no right to watch it; otherwise Unavailable.
func (m *Members) Ready(ref deploy.ObjectRef) (since time.Time, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k := m.kinds[manifest.GroupKind(ref)]
	if k == nil {
		return time.Time{}, deploy.Errorf(deploy.Unavailable, "objects of kind %s are not watched yet", ref.Kind)
	}
	return m.ready(k, ref.Namespace)
}

// Problems returns the kinds whose cache has not followed the cluster for gracePeriod, with
// the reason, sorted. A kind that the cluster does not serve is not a problem.
func (m *Members) Problems() (found []deploy.WatchProblem) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for kind, k := range m.kinds {
		for namespace := range k.wanted() {
			since, err := m.ready(k, namespace)
			if err == nil || deploy.IsKind(err, deploy.NotFound) || m.cluster.Now().Sub(since) < gracePeriod {
				continue
			}
			found = append(found, deploy.WatchProblem{Kind: kind.String(), Error: err.Error(), Since: since})
			break
		}
	}
	slices.SortFunc(found, func(a, b deploy.WatchProblem) int { return cmp.Compare(a.Kind, b.Kind) })
	return found
}

// ready is Ready for objects of a kind in a namespace. m.mu is held.
func (m *Members) ready(k *memberKind, namespace string) (since time.Time, err error) {
	if k.problem != nil {
		return k.since, k.problem
	}
	w := k.watchFor(namespace)
	if w == nil {
		return k.since, m.unready(k, errNotRead)
	}
	if since, err := m.trouble(w); err != nil {
		return since, m.unready(k, err)
	}
	return time.Time{}, nil
}

// trouble returns the State of a watch, but ignores a failure younger than gracePeriod if
// the cache was filled before.
func (m *Members) trouble(w *watch.Watch) (since time.Time, err error) {
	since, err = w.State()
	if err != nil && w.Synced() && m.cluster.Now().Sub(since) < gracePeriod {
		return time.Time{}, nil
	}
	return since, err
}

// unready returns the error of Ready for a kind that is not watched because of err. It is
// Invalid if err is Forbidden, NotFound if err is NotFound, otherwise Unavailable.
func (m *Members) unready(k *memberKind, err error) error {
	if apierrors.IsForbidden(err) {
		return deploy.Errorf(deploy.Invalid, "objects of kind %s cannot be watched in %s: %w; give the agent's account the rights get, list and watch on %s",
			k.gvk.Kind, m.cluster, err, k.resource())
	}
	err = m.cluster.Classify(err)
	kind := deploy.Unavailable
	if apierrors.IsNotFound(err) {
		kind = deploy.NotFound
	}
	return deploy.Errorf(kind, "objects of kind %s are not followed in %s: %w", k.gvk.Kind, m.cluster, err)
}

// changed calls wake for the application of a changed object, except after a change of its
// status alone. If the label changed, it also wakes the former application.
func (m *Members) changed(before, after any) {
	older, _ := before.(*cachedMember)
	newer, _ := after.(*cachedMember)
	switch {
	case older == nil && newer == nil:
	case older == nil:
		m.wake(newer.application.Value())
	case newer == nil:
		m.wake(older.application.Value())
	case newer.seen != older.seen:
		m.wake(newer.application.Value())
		if newer.application != older.application {
			m.wake(older.application.Value())
		}
	}
}

// watch starts the watch of a kind in a namespace, "" for all. m.mu is held.
func (m *Members) watch(k *memberKind, namespace string) error {
	w, err := m.controller.Watch(watch.Resource{
		GroupVersionResource: k.served.GroupVersionResource, Namespace: namespace, Selector: manifest.LabelApplication, Metadata: true,
		Transform: reduceMember, StateChanged: m.requestSync,
		Indexes: cache.Indexers{byApplication: applicationOf},
	})
	if err == nil {
		err = w.Notify(m.changed)
	}
	if err != nil {
		return fmt.Errorf("follow objects of kind %s: %w", k.gvk.Kind, err)
	}
	k.watches[namespace] = w
	return nil
}

// applicationOf is the index function of byApplication.
func applicationOf(obj any) ([]string, error) {
	if kept, ok := obj.(*cachedMember); ok {
		return []string{kept.application.Value()}, nil
	}
	return nil, nil
}

// requestSync makes the supervisor sync. It returns at once.
func (m *Members) requestSync() {
	select {
	case m.syncRequested <- struct{}{}:
	default:
	}
}
