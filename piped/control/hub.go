package control

import (
	"context"
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// hub distributes changes of the store to streaming calls. Each changed state, of type V, is
// read and converted to its message, of type M, only once for all calls, and not at all if no
// call watches it. A slow call delays no other: pending states are buffered per call, only the
// newest of each ID.
type hub[V, M any] struct {
	watched[V, M]
	published map[string]int64 // last published revision by ID; used by run only

	mu    sync.Mutex
	subs  map[*subscription[V, M]]struct{}
	ended error // why the hub has stopped
}

// watched configures what a hub distributes.
type watched[V, M any] struct {
	store Store
	topic deploy.Topic
	hints []deploy.Topic // changes of these only wake subscriptions with hints
	// applications makes changes of hints, too, changes of the states of their applications,
	// which have the applications' IDs.
	applications bool
	read         func(ctx context.Context, ids []string) ([]V, error)
	// version returns the ID and the revision of a state; revisions only increase.
	version func(*V) (id string, revision int64)
	convert func(V) M
}

// filter selects the states of a subscription.
type filter[V any] interface {
	matches(*V) bool
	// mayMatch returns false if the change cannot concern a matching state.
	mayMatch(deploy.Change) bool
}

// maxPublished limits the number of stored revisions. After they are dropped a state may be
// sent twice.
const maxPublished = 10_000

func newHub[V, M any](w watched[V, M]) *hub[V, M] {
	return &hub[V, M]{watched: w, published: map[string]int64{}, subs: map[*subscription[V, M]]struct{}{}}
}

// deploymentHub distributes deployments, with hints about growing logs.
type deploymentHub = hub[deploy.Deployment, *modelv1.Deployment]

// newDeploymentHub returns the hub of the calls that follow deployments and their logs;
// the caller runs it.
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

// watch starts the feed for run; it contains all changes committed from now on.
func (h *hub[V, M]) watch() *store.Watch {
	return h.store.Watch(append([]deploy.Topic{h.topic}, h.hints...)...)
}

// run publishes the changes in feed until ctx ends, then ends all subscriptions.
func (h *hub[V, M]) run(ctx context.Context, feed *store.Watch) {
	defer feed.Close()
	for {
		select {
		case <-ctx.Done():
			h.stop(deploy.Errorf(deploy.Stopping, "the agent is shutting down: call again once it is back"))
			return
		case <-feed.C():
			h.publish(ctx, feed.Take())
		}
	}
}

// publish reads the changed states that a subscription may match and distributes them. If
// reading fails, the subscriptions end, so that clients reconnect and get the current
// state; unless ctx has ended, since run then ends them with the reason.
func (h *hub[V, M]) publish(ctx context.Context, changes []deploy.Change) {
	ids := h.wanted(changes)
	if len(ids) == 0 {
		return
	}
	list, err := h.read(ctx, ids)
	if err != nil && ctx.Err() != nil {
		return
	}
	list = slices.DeleteFunc(list, h.isPublished)
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

// isPublished reports whether this or a newer revision was published before; that happens if a
// state was read before its change was announced. It records the revision as published.
func (h *hub[V, M]) isPublished(v V) bool {
	if len(h.published) >= maxPublished {
		clear(h.published)
	}
	id, revision := h.version(&v)
	was, known := h.published[id]
	h.published[id] = revision
	return known && revision <= was
}

// wanted wakes the subscriptions with hints. It returns the distinct IDs of the changes that a
// subscription may match.
func (h *hub[V, M]) wanted(changes []deploy.Change) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	seen := map[string]bool{}
	for _, c := range changes {
		if h.applications {
			c = deploy.Change{Topic: h.topic, ID: c.ApplicationID, ApplicationID: c.ApplicationID}
		}
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

// snapshot is a state at one point in time.
type snapshot[V, M any] struct {
	state    *V
	id       string
	revision int64
	message  func() M // converted at most once; read-only
}

// snapshot returns a state with its ID and revision. The state is converted to a
// message when that is first needed.
func (h *hub[V, M]) snapshot(v *V) snapshot[V, M] {
	id, revision := h.version(v)
	return snapshot[V, M]{v, id, revision, sync.OnceValue(func() M { return h.convert(*v) })}
}

// subscribe starts a subscription of matching states and, optionally, of hints. The caller
// must close it.
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

// stop ends all current and future subscriptions.
func (h *hub[V, M]) stop(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = why
	for sub := range h.subs {
		sub.end(why)
	}
}

// subscription buffers the pending states of one call.
type subscription[V, M any] struct {
	hub    *hub[V, M]
	filter filter[V]
	hints  bool
	signal chan struct{} // signals pending states or a hint

	mu     sync.Mutex
	order  []string                  // IDs in the order of their first change
	newest map[string]snapshot[V, M] // by ID
	ended  error
}

// take returns the states that changed since the last take, or the error that ended the
// subscription.
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

// put buffers a state until the next take, in place of an older one with the same ID.
func (s *subscription[V, M]) put(v snapshot[V, M]) {
	s.mu.Lock()
	if _, waits := s.newest[v.id]; !waits {
		s.order = append(s.order, v.id)
	}
	s.newest[v.id] = v
	s.mu.Unlock()
	s.wake()
}

// end makes take return the reason as its error.
func (s *subscription[V, M]) end(why error) {
	s.mu.Lock()
	s.ended = why
	s.mu.Unlock()
	s.wake()
}

// wake makes one call of wait return.
func (s *subscription[V, M]) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// wait waits for pending states or a hint; it returns an error if the call has ended.
func (s *subscription[V, M]) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.signal:
		return nil
	}
}

// each sends changed states until the call or the subscription ends. It skips revisions
// that are not newer than those in sent, and states that see rejects; nil accepts all.
func (s *subscription[V, M]) each(ctx context.Context, sent map[string]int64, see func(*V) (bool, error), send func(M) error) error {
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
			delete(sent, v.id) // later states are newer
			if see != nil {
				if seen, err := see(v.state); err != nil {
					return err
				} else if !seen {
					continue
				}
			}
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
