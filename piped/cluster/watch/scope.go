package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Attempts to watch the whole cluster after the API server has forbidden it: the right may
// be granted while the agent runs.
const (
	widenInterval = 5 * time.Minute
	widenTimeout  = time.Minute // bounds the first fill
)

// Scope watches a namespaced resource in the whole cluster or, if the API server forbids
// that, in each covered namespace. Its methods correspond to those of Watch, for all its
// watches. It is safe for concurrent use.
type Scope struct {
	controller *Controller
	resource   Resource

	mu          sync.Mutex
	started     bool
	byNamespace bool              // the agent may not watch the whole cluster
	namespaces  map[string]bool   // covered
	watches     map[string]*Watch // by namespace, "" for all
	handlers    map[handlerID]Handler
}

// Scope returns the Scope of a resource. It watches nothing before Start.
func (c *Controller) Scope(r Resource) *Scope {
	s := &Scope{controller: c, resource: r, namespaces: map[string]bool{}, watches: map[string]*Watch{}, handlers: map[handlerID]Handler{}}
	s.resource.StateChanged = s.onStateChange
	return s
}

// Start starts to watch. It is idempotent.
func (s *Scope) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	return s.startMissing()
}

// Cover adds a namespace that is watched while the agent may not watch the whole cluster.
// It starts no watch before Start.
func (s *Scope) Cover(namespace string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[namespace] = true
	return s.startMissing()
}

// startMissing starts the missing watches. s.mu is held.
func (s *Scope) startMissing() error {
	wanted := map[string]bool{"": true}
	if s.byNamespace {
		wanted = s.namespaces
	}
	for namespace := range wanted {
		if !s.started || s.watches[namespace] != nil {
			continue
		}
		w, err := s.watch(namespace)
		if err != nil {
			return err
		}
		s.watches[namespace] = w
	}
	return nil
}

// watch starts to watch a namespace, "" for all, with the current handlers. s.mu is held.
func (s *Scope) watch(namespace string) (*Watch, error) {
	r := s.resource
	r.Namespace = namespace
	w, err := s.controller.Watch(r)
	if err != nil {
		return nil, err
	}
	for id, h := range s.handlers {
		if err := w.HandleDuring(id.during, id.name, h); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// all returns the current watches.
func (s *Scope) all() (watches []*Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		watches = append(watches, w)
	}
	return watches
}

// Handle is Watch.Handle, for current and later watches.
func (s *Scope) Handle(name string, h Handler) error {
	return s.HandleDuring(context.Background(), name, h)
}

// HandleDuring is Watch.HandleDuring, for current and later watches.
func (s *Scope) HandleDuring(during context.Context, name string, h Handler) error {
	id := handlerID{name, during}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handlers[id] != nil {
		return nil
	}
	for _, w := range s.watches {
		if err := w.HandleDuring(during, name, h); err != nil {
			return err
		}
	}
	s.handlers[id] = h
	context.AfterFunc(during, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.handlers, id)
	})
	return nil
}

// Get is Watch.Get. It returns nil in a namespace that is not watched.
func (s *Scope) Get(key types.NamespacedName) any {
	s.mu.Lock()
	w := s.watches[""]
	if s.byNamespace {
		w = s.watches[key.Namespace]
	}
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Get(key)
}

// List is Watch.List.
func (s *Scope) List() (found []any) {
	for _, w := range s.all() {
		found = append(found, w.List()...)
	}
	return found
}

// ByIndex is Watch.ByIndex.
func (s *Scope) ByIndex(index, value string) (found []any, err error) {
	for _, w := range s.all() {
		some, err := w.ByIndex(index, value)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// State is Watch.State of any watch that does not follow the cluster, nil if all do.
func (s *Scope) State() (since time.Time, err error) {
	for _, w := range s.all() {
		if since, err := w.State(); err != nil {
			return since, err
		}
	}
	return time.Time{}, nil
}

// Filled is Watch.Filled of all watches.
func (s *Scope) Filled(ctx context.Context) error {
	return s.filled(ctx, s.all)
}

// FilledIn is Filled for one namespace, which is covered from then on.
func (s *Scope) FilledIn(ctx context.Context, namespace string) error {
	if err := s.Cover(namespace); err != nil {
		return err
	}
	return s.filled(ctx, func() (watches []*Watch) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.byNamespace {
			namespace = ""
		}
		if w := s.watches[namespace]; w != nil {
			watches = append(watches, w)
		}
		return watches
	})
}

// filled waits for the watches that the function returns, and again for those that replaced
// them if one was ended.
func (s *Scope) filled(ctx context.Context, watches func() []*Watch) error {
	for {
		var err error
		for _, w := range watches() {
			if err = w.Filled(ctx); err != nil {
				break
			}
		}
		if !errors.Is(err, errEnded) {
			return err
		}
	}
}

// onStateChange replaces the watch of the whole cluster by one for each covered namespace if
// the API server forbids it. It then tries periodically to return to the whole cluster.
func (s *Scope) onStateChange() {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := s.watches[""]
	if whole == nil {
		return
	}
	if _, err := whole.State(); !apierrors.IsForbidden(err) {
		return
	}
	log := s.controller.log.With("resource", s.resource.Resource)
	log.Info("the agent may not watch a kind in the whole cluster; it is watched by namespace")
	s.byNamespace = true
	delete(s.watches, "")
	whole.End()
	if err := s.startMissing(); err != nil {
		log.Warn("cannot watch objects", "error", err)
	}
	s.controller.Go(s.widenPeriodically)
}

// widenPeriodically calls widen until it succeeds.
func (s *Scope) widenPeriodically(ctx context.Context) {
	again := time.NewTicker(widenInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if s.widen(ctx) {
				return
			}
		}
	}
}

// widen replaces the watches of namespaces by one of the whole cluster, if the agent may
// watch it and as soon as its cache is filled. It reports whether it did.
func (s *Scope) widen(ctx context.Context) bool {
	_, err := s.controller.cluster.Metadata().Resource(s.resource.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false
	}
	s.mu.Lock()
	whole, err := s.watch("")
	s.mu.Unlock()
	if err != nil {
		return false
	}
	filling, cancel := context.WithTimeout(ctx, widenTimeout)
	defer cancel()
	if err = whole.Filled(filling); err == nil {
		_, err = whole.State()
	}
	if err != nil {
		whole.End()
		return false
	}
	s.controller.log.InfoContext(ctx, "a kind is watched in the whole cluster from now on", "resource", s.resource.Resource)
	s.replace(whole)
	s.onStateChange() // it may be forbidden again by now
	return true
}

// replace replaces the watches of namespaces by that of the whole cluster.
func (s *Scope) replace(whole *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.handlers { // some may be new
		if err := whole.HandleDuring(id.during, id.name, h); err != nil {
			s.controller.log.Warn("cannot watch objects", "resource", s.resource.Resource, "error", err)
		}
	}
	for _, w := range s.watches {
		w.End()
	}
	s.byNamespace, s.watches = false, map[string]*Watch{"": whole}
}
