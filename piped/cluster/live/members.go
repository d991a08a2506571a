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

// byApplication indexes members by their application label.
const byApplication = "application"

// gracePeriod is how long a watch may fail before Members.Ready says so: the
// connection to an API server breaks now and then, and is made anew at once.
const gracePeriod = 10 * time.Second

// errNotRead is why a kind without a watch is not ready.
var errNotRead = errors.New("not read yet")

// Members follows the live objects of applications by their metadata: all objects of
// the kinds that it was asked to Follow and that carry the application label. Of each
// it keeps a few hundred bytes. Where the agent may not watch a kind in the whole
// cluster it watches it in the namespaces where objects were named to Follow.
//
// Kinds come and go with their definitions: a kind that the cluster does not serve is
// looked for again when definitions change, and from time to time.
//
// Members is safe for concurrent use. Nothing happens until the controller runs.
type Members struct {
	cluster       *cluster.Cluster
	controller    *watch.Controller
	wake          func(applicationID string)
	syncRequested chan struct{}

	mu    sync.RWMutex
	kinds map[schema.GroupKind]*memberKind

	// Of the supervisor (members_kinds.go).
	definitions *watch.Watch
	stale       bool      // the cluster may serve other kinds than is known
	renewed     time.Time // when it was asked last
	wasReady    map[string]bool
}

// NewMembers makes Members whose caches are run by controller. Wake is called with the
// application of each object that comes, goes or changes by more than its status, with
// both when an object changes hands, and with "" when it may concern any application:
// when Ready begins or ceases to return an error for some objects. It must return at
// once; it is called often, and for objects that were there before as well.
func NewMembers(c *cluster.Cluster, controller *watch.Controller, wake func(applicationID string)) *Members {
	m := &Members{
		cluster: c, controller: controller, wake: wake, syncRequested: make(chan struct{}, 1),
		kinds: map[schema.GroupKind]*memberKind{}, wasReady: map[string]bool{},
	}
	controller.Go(m.run)
	return m
}

// Follow has the kinds of these objects watched from now on, and their namespaces
// looked at where the cluster as a whole may not be. It returns at once and may be
// called with what is followed already. Nothing is ever given up: what no application
// has any more costs little.
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

// Get returns the object of that group, kind, namespace and name, in whatever version,
// if there is one.
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

// Of returns the objects that carry the label of an application, in no order.
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

// Ready returns nil if what Get and Of tell about an object is what the cluster holds,
// a moment ago at most: all objects of the kind that can be seen there have been read
// and are followed. Otherwise it returns since when it is not so (zero if it was never
// asked to Follow it) and why: an error of kind NotFound if the cluster does not serve
// the kind, so that there is no such object; Invalid if the agent has no right to watch
// it; else Unavailable.
func (m *Members) Ready(ref deploy.ObjectRef) (since time.Time, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k := m.kinds[manifest.GroupKind(ref)]
	if k == nil {
		return time.Time{}, deploy.Errorf(deploy.Unavailable, "objects of kind %s are not watched yet", ref.Kind)
	}
	return m.ready(k, ref.Namespace)
}

// Problems returns the kinds of which it has not been known for a while what the
// cluster holds, and why, by kind. One that it does not serve is none.
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

// trouble is the watch's State, but for a failure that has only begun.
func (m *Members) trouble(w *watch.Watch) (since time.Time, err error) {
	since, err = w.State()
	if err != nil && w.Synced() && m.cluster.Now().Sub(since) < gracePeriod {
		return time.Time{}, nil
	}
	return since, err
}

// unready says why objects of a kind are not followed.
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

// changed wakes whom the change of an object concerns.
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

// watch starts to watch a kind in a namespace, "" for all. m.mu is held.
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

// requestSync has the supervisor look again. It returns at once.
func (m *Members) requestSync() {
	select {
	case m.syncRequested <- struct{}{}:
	default:
	}
}
