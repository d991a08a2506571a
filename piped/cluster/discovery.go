package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	apidiscovery "k8s.io/client-go/discovery"

	"github.com/c785c783/piped/piped/deploy"
)

// ServedKind is the resource by which a cluster serves a kind, and its scope.
type ServedKind struct {
	schema.GroupVersionResource
	Namespaced bool
}

// ErrUnknownKind is the error for a kind that the cluster does not serve.
var ErrUnknownKind = errors.New("the cluster does not know the kind")

// refreshEvery is the minimum time between two refreshes that missing kinds cause.
const refreshEvery = 5 * time.Second

// discoverer is the part of client-go's discovery client that discovery uses.
type discoverer interface {
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// discovery caches which kinds a cluster serves. It is filled on first use and refreshed
// when a kind is missing, at most every refreshEvery.
type discovery struct {
	client discoverer
	now    func() time.Time

	fetching chan struct{} // holds a token during a refresh

	mu      sync.RWMutex
	kinds   map[schema.GroupVersionKind]ServedKind
	failed  map[schema.GroupVersion]error // groups whose extension server did not answer
	fetched time.Time
	// changes counts events that may have changed the kinds; seen is its value at the
	// last refresh.
	changes, seen int
}

func newDiscovery(client discoverer, now func() time.Time) *discovery {
	return &discovery{client: client, now: now, fetching: make(chan struct{}, 1)}
}

// lookup returns how gvk is served, and refreshes the cache if it does not contain gvk. The
// error wraps ErrUnknownKind when the cluster does not serve the kind.
func (d *discovery) lookup(ctx context.Context, gvk schema.GroupVersionKind) (ServedKind, error) {
	if r, ok := d.cached(gvk); ok {
		return r, nil
	}
	if err := d.refresh(ctx); err != nil {
		return ServedKind{}, err
	}
	return d.known(gvk)
}

// known is lookup without a refresh. The error is of kind Unavailable when the extension
// server of the group did not answer.
func (d *discovery) known(gvk schema.GroupVersionKind) (ServedKind, error) {
	if r, ok := d.cached(gvk); ok {
		return r, nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.failed[gvk.GroupVersion()]; err != nil {
		return ServedKind{}, deploy.Errorf(deploy.Unavailable,
			"find how %s %s is served: the server behind the API group %s does not answer: %w", gvk.GroupVersion(), gvk.Kind, gvk.Group, err)
	}
	return ServedKind{}, fmt.Errorf("%s %s: %w", gvk.GroupVersion(), gvk.Kind, ErrUnknownKind)
}

// lookupKind returns how a kind is served in any version, preferably the given one: a
// version may have been withdrawn since an object was applied.
func (d *discovery) lookupKind(ctx context.Context, gvk schema.GroupVersionKind) (ServedKind, error) {
	if r, err := d.lookup(ctx, gvk); !errors.Is(err, ErrUnknownKind) {
		return r, err
	}
	return d.knownKind(gvk)
}

// knownKind is lookupKind without a refresh. Of several other versions it returns the most
// stable one.
func (d *discovery) knownKind(gvk schema.GroupVersionKind) (served ServedKind, err error) {
	served, err = d.known(gvk)
	if !errors.Is(err, ErrUnknownKind) {
		return served, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for k, r := range d.kinds {
		if k.GroupKind() == gvk.GroupKind() && (err != nil || version.CompareKubeAwareVersionStrings(r.Version, served.Version) > 0) {
			served, err = r, nil
		}
	}
	return served, err
}

// renew refreshes the cache regardless of its age.
func (d *discovery) renew(ctx context.Context) error {
	d.invalidate()
	return d.refresh(ctx)
}

// invalidate makes the next cache miss refresh the cache regardless of its age.
func (d *discovery) invalidate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
}

func (d *discovery) cached(gvk schema.GroupVersionKind) (ServedKind, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	r, ok := d.kinds[gvk]
	return r, ok
}

// fresh reports whether the cache is younger than refreshEvery and not invalidated.
func (d *discovery) fresh() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.seen == d.changes && !d.fetched.IsZero() && d.now().Sub(d.fetched) < refreshEvery
}

// refresh refreshes the cache unless it is fresh. Concurrent callers share one request. When
// ctx ends first, the error is its cause.
func (d *discovery) refresh(ctx context.Context) error {
	select {
	case d.fetching <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.fetching }()
	if d.fresh() {
		return nil
	}
	d.mu.RLock()
	changes := d.changes
	d.mu.RUnlock()
	_, lists, err := d.client.ServerGroupsAndResourcesWithContext(ctx)
	var partial *apidiscovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return err
	}
	kinds := readKinds(lists)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = nil
	if partial != nil {
		d.failed = partial.Groups
		keepFailed(kinds, d.kinds, partial.Groups)
	}
	d.kinds, d.fetched, d.seen = kinds, d.now(), changes
	return nil
}

// keepFailed copies the known kinds of the failed groups into kinds.
func keepFailed(kinds, known map[schema.GroupVersionKind]ServedKind, failed map[schema.GroupVersion]error) {
	for gvk, r := range known {
		if failed[gvk.GroupVersion()] != nil {
			kinds[gvk] = r
		}
	}
}

// readKinds returns the kinds in an answer of the discovery API, without subresources.
func readKinds(lists []*metav1.APIResourceList) map[schema.GroupVersionKind]ServedKind {
	kinds := map[schema.GroupVersionKind]ServedKind{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // malformed: no request can address these kinds
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			kinds[gv.WithKind(r.Kind)] = ServedKind{GroupVersionResource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
		}
	}
	return kinds
}

// Resource returns how the cluster serves gvk. The error is of kind Invalid when the cluster
// does not serve the kind, and Unavailable when the cluster does not answer.
func (c *Cluster) Resource(ctx context.Context, gvk schema.GroupVersionKind) (ServedKind, error) {
	r, err := c.discovery.lookup(ctx, gvk)
	if errors.Is(err, ErrUnknownKind) {
		return ServedKind{}, deploy.Errorf(deploy.Invalid, "%s: %w", c, err)
	}
	return r, c.Classify(err)
}

// Lookup is Resource with an unclassified error: it wraps ErrUnknownKind when the cluster
// does not serve the kind.
func (c *Cluster) Lookup(ctx context.Context, gvk schema.GroupVersionKind) (ServedKind, error) {
	return c.discovery.lookup(ctx, gvk)
}

// FindKind returns how the cluster serves a kind in any version, preferably the given one:
// a version may have been withdrawn since an object was applied. The error wraps
// ErrUnknownKind when the cluster serves no version of the kind.
func (c *Cluster) FindKind(ctx context.Context, gvk schema.GroupVersionKind) (ServedKind, error) {
	return c.discovery.lookupKind(ctx, gvk)
}

// CachedKind is FindKind from the cache. It sends no request.
func (c *Cluster) CachedKind(gvk schema.GroupVersionKind) (ServedKind, error) {
	return c.discovery.knownKind(gvk)
}

// InvalidateKinds makes the next lookup of a kind that is not cached read the served kinds
// again, regardless of the age of the cache.
func (c *Cluster) InvalidateKinds() { c.discovery.invalidate() }

// RefreshKinds reads the served kinds into the cache, regardless of the age of the cache.
func (c *Cluster) RefreshKinds(ctx context.Context) error { return c.discovery.renew(ctx) }
