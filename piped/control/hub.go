package control

import (
	"context"
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// hub tells calls that stream what has changed in the store. What has changed, a V,
// is read and converted to its message, an M, once, however many calls watch it, and
// not at all when none does. A call that is slow delays no other: what it has not
// taken yet is kept for it, the newest state of each.
type hub[V, M any] struct {
	watched[V, M]
	told map[string]int64 // revisions that were handed on, by ID; of run

	mu    sync.Mutex
	subs  map[*subscription[V, M]]struct{}
	ended error // why there are no subscriptions any more
}

// watched is what a hub tells of.
type watched[V, M any] struct {
	store Store
	topic deploy.Topic
	hints []deploy.Topic // whose changes only wake those who asked for hints
	read  func(ctx context.Context, ids []string) ([]V, error)
	// version returns the ID and the revision of a state, which only grows.
	version func(*V) (id string, revision int64)
	convert func(V) M
}

// filter says what a subscription is about.
type filter[V any] interface {
	matches(*V) bool
	// mayMatch is false when what has changed does not match, as far as a change tells.
	mayMatch(deploy.Change) bool
}

// maxTold bounds the revisions that are remembered. Forgetting them means that a
// state may come twice.
const maxTold = 10_000

func newHub[V, M any](w watched[V, M]) *hub[V, M] {
	return &hub[V, M]{watched: w, told: map[string]int64{}, subs: map[*subscription[V, M]]struct{}{}}
}

// deploymentHub tells of deployments, and hints at logs that grow.
type deploymentHub = hub[deploy.Deployment, *modelv1.Deployment]

func newDeploymentHub(s Store, c converter) *deploymentHub {
	return newHub(watched[deploy.Deployment, *modelv1.Deployment]{
		store: s, topic: deploy.TopicDeployment, hints: []deploy.Topic{deploy.TopicStageLog},
		read: func(ctx context.Context, ids []string) ([]deploy.Deployment, error) {
			return s.DeploymentsByID(ctx, ids)
		},
		version: func(d *deploy.Deployment) (string, int64) { return d.ID, d.Revision },
		convert: func(d deploy.Deployment) *modelv1.Deployment { return c.deployment(d, nil) },
	})
}

// watch begins what run follows: changes that are committed after it returned are
// seen.
func (h *hub[V, M]) watch() *store.Watch {
	return h.store.Watch(append([]deploy.Topic{h.topic}, h.hints...)...)
}

// run hands on what feed tells until ctx ends; then every subscription ends.
func (h *hub[V, M]) run(ctx context.Context, feed *store.Watch) {
	defer feed.Close()
	for {
		select {
		case <-ctx.Done():
			h.stop(deploy.Errorf(deploy.Stopping, "the agent is shutting down: call again once it is back"))
			return
		case <-feed.C():
			h.handOn(ctx, feed.Take())
		}
	}
}

// handOn reads what changed and somebody wants to know of. When it cannot be
// read, the subscriptions end: who calls again is told what is so by then.
func (h *hub[V, M]) handOn(ctx context.Context, changes []deploy.Change) {
	ids := h.wanted(changes)
	if len(ids) == 0 {
		return
	}
	list, err := h.read(ctx, ids)
	list = slices.DeleteFunc(list, h.isTold)
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs {
		if err != nil {
			sub.end(err)
			continue
		}
		for i := range list {
			if sub.filter.matches(&list[i]) {
				sub.put(h.snapshot(&list[i]))
			}
		}
	}
}

// isTold reports whether a state was handed on already: one that was read before
// its change was announced. It counts as handed on from now.
func (h *hub[V, M]) isTold(v V) bool {
	if len(h.told) >= maxTold {
		clear(h.told)
	}
	id, revision := h.version(&v)
	was, known := h.told[id]
	h.told[id] = revision
	return known && revision <= was
}

// wanted wakes those who asked for hints, and returns the IDs of what has changed
// and somebody may watch, each once.
func (h *hub[V, M]) wanted(changes []deploy.Change) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	seen := map[string]bool{}
	for _, c := range changes {
		for sub := range h.subs {
			switch {
			case !sub.filter.mayMatch(c):
			case c.Topic != h.topic && sub.hints:
				sub.wake()
			case c.Topic == h.topic && !seen[c.ID]:
				seen[c.ID] = true
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// snapshot is a state as it was at one moment.
type snapshot[V, M any] struct {
	state    *V
	id       string
	revision int64
	message  func() M // made at most once; nobody may change it
}

func (h *hub[V, M]) snapshot(v *V) snapshot[V, M] {
	id, revision := h.version(v)
	return snapshot[V, M]{v, id, revision, sync.OnceValue(func() M { return h.convert(*v) })}
}

// subscribe begins a subscription of what matches, and, if hints is set, of hints.
// The caller closes it.
func (h *hub[V, M]) subscribe(f filter[V], hints bool) *subscription[V, M] {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &subscription[V, M]{hub: h, filter: f, hints: hints, signal: make(chan struct{}, 1), newest: map[string]snapshot[V, M]{}}
	if h.ended != nil {
		s.end(h.ended)
		return s
	}
	h.subs[s] = struct{}{}
	return s
}

// stop ends every subscription, those to come included.
func (h *hub[V, M]) stop(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = why
	for sub := range h.subs {
		sub.end(why)
	}
}

// subscription is what one call has not taken yet.
type subscription[V, M any] struct {
	hub    *hub[V, M]
	filter filter[V]
	hints  bool
	signal chan struct{} // holds one when there is something to take or a hint has come

	mu     sync.Mutex
	order  []string                  // of the first change of each
	newest map[string]snapshot[V, M] // by ID
	ended  error
}

// take returns what has changed since the last take, or why the subscription has
// ended.
func (s *subscription[V, M]) take() ([]snapshot[V, M], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]snapshot[V, M], len(s.order))
	for i, id := range s.order {
		out[i] = s.newest[id]
	}
	s.order = nil
	clear(s.newest)
	return out, s.ended
}

func (s *subscription[V, M]) put(v snapshot[V, M]) {
	s.mu.Lock()
	if _, waits := s.newest[v.id]; !waits {
		s.order = append(s.order, v.id)
	}
	s.newest[v.id] = v
	s.mu.Unlock()
	s.wake()
}

func (s *subscription[V, M]) end(why error) {
	s.mu.Lock()
	s.ended = why
	s.mu.Unlock()
	s.wake()
}

func (s *subscription[V, M]) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// wait returns nil when there is something to take or a hint may have come, and
// why the call has ended otherwise.
func (s *subscription[V, M]) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.signal:
		return nil
	}
}

// each hands on what has changed until one of both ends. Revisions up to those that
// were sent are passed over.
func (s *subscription[V, M]) each(ctx context.Context, sent map[string]int64, send func(M) error) error {
	for {
		if err := s.wait(ctx); err != nil {
			return err
		}
		changed, err := s.take()
		if err != nil {
			return err
		}
		for _, v := range changed {
			if was, has := sent[v.id]; has && v.revision <= was {
				continue
			}
			delete(sent, v.id) // what the subscription holds becomes only newer
			if err := send(v.message()); err != nil {
				return err
			}
		}
	}
}

func (s *subscription[V, M]) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
}
