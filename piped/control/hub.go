package control

import (
	"context"
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// hub tells calls that stream what has changed in the store. A changed deployment
// is read and converted once, however many calls watch it, and not at all when
// none does. A call that is slow delays no other: what it has not taken yet is
// kept for it, the newest state of each deployment.
type hub struct {
	store   Store
	convert converter
	told    map[string]int64 // revisions that were handed on, by deployment ID; of run

	mu    sync.Mutex
	subs  map[*subscription]struct{}
	ended error // why there are no subscriptions any more
}

// maxTold bounds the revisions that are remembered. Forgetting them means that a
// state may come twice.
const maxTold = 10_000

func newHub(s Store, c converter) *hub {
	return &hub{store: s, convert: c, told: map[string]int64{}, subs: map[*subscription]struct{}{}}
}

// watch begins what run follows: changes that are committed after it returned are
// seen.
func (h *hub) watch() *store.Watch {
	return h.store.Watch(deploy.TopicDeployment, deploy.TopicStageLog)
}

// run hands on what feed tells until ctx ends; then every subscription ends.
func (h *hub) run(ctx context.Context, feed *store.Watch) {
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
func (h *hub) handOn(ctx context.Context, changes []deploy.Change) {
	ids := h.wanted(changes)
	if len(ids) == 0 {
		return
	}
	list, err := h.store.DeploymentsByID(ctx, ids)
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
func (h *hub) isTold(d deploy.Deployment) bool {
	if len(h.told) >= maxTold {
		clear(h.told)
	}
	was, known := h.told[d.ID]
	h.told[d.ID] = d.Revision
	return known && d.Revision <= was
}

// wanted wakes those who follow a log that has grown, and returns the deployments
// that have changed and that somebody may watch, each once.
func (h *hub) wanted(changes []deploy.Change) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	seen := map[string]bool{}
	for _, c := range changes {
		for sub := range h.subs {
			switch {
			case !sub.filter.mayMatch(c):
			case c.Topic == deploy.TopicStageLog && sub.logs:
				sub.wake()
			case c.Topic == deploy.TopicDeployment && !seen[c.ID]:
				seen[c.ID] = true
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// snapshot is a deployment as it was at one moment.
type snapshot struct {
	*deploy.Deployment
	message func() *modelv1.Deployment // made at most once; nobody may change it
}

func (h *hub) snapshot(d *deploy.Deployment) snapshot {
	return snapshot{d, sync.OnceValue(func() *modelv1.Deployment { return h.convert.deployment(*d, nil) })}
}

// subscribe begins a subscription of the deployments that match, and, if logs is
// set, of hints that one of their logs has grown. The caller closes it.
func (h *hub) subscribe(f deploymentFilter, logs bool) *subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &subscription{hub: h, filter: f, logs: logs, signal: make(chan struct{}, 1), newest: map[string]snapshot{}}
	if h.ended != nil {
		s.end(h.ended)
		return s
	}
	h.subs[s] = struct{}{}
	return s
}

// stop ends every subscription, those to come included.
func (h *hub) stop(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = why
	for sub := range h.subs {
		sub.end(why)
	}
}

// subscription is what one call has not taken yet.
type subscription struct {
	hub    *hub
	filter deploymentFilter
	logs   bool
	signal chan struct{} // holds one when there is something to take or a log has grown

	mu     sync.Mutex
	order  []string            // of the first change of each
	newest map[string]snapshot // by ID
	ended  error
}

// take returns the deployments that have changed since the last take, or why the
// subscription has ended.
func (s *subscription) take() ([]snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]snapshot, len(s.order))
	for i, id := range s.order {
		out[i] = s.newest[id]
	}
	s.order = nil
	clear(s.newest)
	return out, s.ended
}

func (s *subscription) put(d snapshot) {
	s.mu.Lock()
	if _, waits := s.newest[d.ID]; !waits {
		s.order = append(s.order, d.ID)
	}
	s.newest[d.ID] = d
	s.mu.Unlock()
	s.wake()
}

func (s *subscription) end(why error) {
	s.mu.Lock()
	s.ended = why
	s.mu.Unlock()
	s.wake()
}

func (s *subscription) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// wait returns nil when there is something to take or a log may have grown, and
// why the call has ended otherwise.
func (s *subscription) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.signal:
		return nil
	}
}

func (s *subscription) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
}
