package observe

import (
	"context"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// namedPlace identifies a watch: one kind in one namespace.
type namedPlace struct {
	kind, namespace string
}

// namedHandler is the name of the handler of named objects.
const namedHandler = "config propagation"

// updateWatches watches the metadata of the objects that propagations name, by kind and
// namespace, and ends watches that no propagation needs.
func (n *Nudger) updateWatches(ctx context.Context) error {
	rows, err := n.rowsNaming(ctx)
	if err != nil {
		return err
	}
	wanted, names := map[namedPlace]bool{}, map[string]bool{}
	for _, p := range rows {
		for key := range p.Named {
			ref := propagate.Ref(key)
			wanted[namedPlace{ref.Kind, ref.Namespace}], names[key] = true, true
		}
	}
	n.mu.Lock()
	n.names = names
	n.mu.Unlock()
	for at, w := range n.watched {
		if !wanted[at] {
			w.End()
			delete(n.watched, at)
		}
	}
	var errs []error
	for at := range wanted {
		if n.watched[at] == nil {
			errs = append(errs, n.watch(ctx, at))
		}
	}
	n.enqueueStale(rows)
	return errors.Join(errs...)
}

// enqueueStale enqueues the named objects whose cached version differs from the version in a
// row. It covers changes without an event: those after the version was read and before the
// row was stored or the watch was filled.
func (n *Nudger) enqueueStale(rows []deploy.Propagation) {
	for _, p := range rows {
		for key, seen := range p.Named {
			ref := propagate.Ref(key)
			w := n.watched[namedPlace{ref.Kind, ref.Namespace}]
			if w == nil {
				continue
			}
			if _, err := w.State(); err != nil {
				continue // its cache is out of date
			}
			at := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
			if versionIn(w, at) != seen {
				w.Enqueue(namedHandler, at)
			}
		}
	}
}

// versionIn returns the cached resource version of an object, "" when there is none.
func versionIn(w *watch.Watch, key types.NamespacedName) string {
	if kept, ok := w.Get(key).(*metav1.PartialObjectMetadata); ok {
		return kept.ResourceVersion
	}
	return ""
}

func (n *Nudger) rowsNaming(ctx context.Context) ([]deploy.Propagation, error) {
	return n.cfg.Store.Propagations(ctx, store.PropagationQuery{Cluster: n.cfg.Cluster.Name(), Named: true})
}

// endWatches ends all watches of named objects.
func (n *Nudger) endWatches() {
	for at, w := range n.watched {
		w.End()
		delete(n.watched, at)
	}
}

func (n *Nudger) watch(ctx context.Context, at namedPlace) error {
	w, err := n.cfg.Controller.Watch(watch.Resource{
		GroupVersionResource: apply.ConfigResource(at.kind), Namespace: at.namespace, Metadata: true, Transform: keepVersion, StateChanged: n.wake,
	})
	if err != nil {
		return err
	}
	err = w.HandleDuring(ctx, namedHandler, func(ctx context.Context, key types.NamespacedName) error {
		return n.onConfigChange(ctx, apply.ConfigRef(at.kind, key.Namespace, key.Name), versionIn(w, key))
	})
	if err != nil {
		w.End() // the next call starts a new one
		return err
	}
	n.watched[at] = w
	return nil
}

// keepVersion reduces an object's metadata to its identity and version.
func keepVersion(obj, _ any) (any, error) {
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{ObjectMeta: watch.MetaOf(m)}, nil
	}
	return obj, nil
}

// onConfigChange updates the propagations that name an object if its content has changed. It
// reads the content only if version differs from the stored one.
func (n *Nudger) onConfigChange(ctx context.Context, ref deploy.ObjectRef, version string) error {
	key := ref.Key()
	if !n.isNamed(key) {
		return nil
	}
	rows, err := n.rowsNaming(ctx)
	if err != nil {
		return err
	}
	for _, p := range rows {
		seen, ok := p.Named[key]
		if !ok || seen == version {
			continue
		}
		c := n.cfg.Cluster
		if p.User != "" {
			if c, err = c.As(p.User); err != nil {
				return err
			}
		}
		content, err := apply.ReadConfig(ctx, c, ref)
		if err != nil {
			return err
		}
		if content.Version == seen {
			continue // the watch is behind the API server
		}
		if _, err = n.cfg.Store.SavePropagation(ctx, n.noted(p, key, content)); err != nil {
			return err // a conflict is retried with the newer row
		}
	}
	return nil
}

// isNamed reports whether a propagation names the object.
func (n *Nudger) isNamed(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[key]
}

// noted returns p with the current content of a named object. If the content changed, it
// schedules a nudge.
func (n *Nudger) noted(p deploy.Propagation, key string, content apply.Content) deploy.Propagation {
	configs := maps.Clone(p.Configs)
	configs[key] = content.Hash
	p.Named = maps.Clone(p.Named)
	p.Named[key] = content.Version
	next, changed := propagate.Note(p, configs, nil)
	if !changed {
		return next
	}
	now := n.cfg.Now()
	if content.At.IsZero() { // it was deleted
		content.At = now
	}
	return propagate.Begin(next, content.At, now)
}
