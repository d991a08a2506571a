package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Limits bound the concurrency; zero means no limit.
type Limits struct {
	Deployments int // in total
	PerCluster  int // per platform provider
}

// turns records when each application last started a deployment, for fairness. Each
// application has at most one waiting deployment. An application with many deployments
// thus lets each other one run before its own next.
type turns struct {
	given int            // starts in this process
	last  map[string]int // by application ID: number of its last start
}

// started records that an application has started a deployment.
func (t *turns) started(applicationID string) {
	t.given++
	t.last[applicationID] = t.given
}

// startable moves the deployments to start now from waiting to runs. Interrupted
// deployments come first and ignore the limits, since they held a slot before. Then
// come the applications whose last start is the oldest, then the oldest deployments. A
// full provider does not block others.
func (s *Scheduler) startable() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	limits := s.Limits()
	order := s.startOrder(limits)
	var out []*run
	for _, id := range order {
		d := s.waiting[id]
		if d.Status == deploy.Planned && !s.slotFree(limits, d.Provider) {
			continue
		}
		r := newRun(s, d)
		s.runs[d.ID] = r
		delete(s.waiting, d.ID)
		s.turns.started(d.ApplicationID)
		out = append(out, r)
	}
	return out
}

// startOrder returns the IDs of the waiting deployments in the order of their start,
// without those that no slot can be free for. s.mu is held.
func (s *Scheduler) startOrder(limits Limits) []string {
	type place struct {
		rank, last int
		at         time.Time
		id         string
	}
	full := limits.Deployments > 0 && len(s.runs) >= limits.Deployments
	var places []place
	for id, d := range s.waiting {
		p := place{last: s.turns.last[d.ApplicationID], at: d.Trigger.At, id: id}
		if d.Status == deploy.Planned {
			p.rank = 1
		}
		if p.rank == 0 || !full {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.last, b.last), a.at.Compare(b.at), cmp.Compare(a.id, b.id))
	})
	order := make([]string, len(places))
	for i, p := range places {
		order[i] = p.id
	}
	return order
}

// slotFree reports whether one more deployment may run on provider. s.mu is held.
func (s *Scheduler) slotFree(limits Limits, provider string) bool {
	if limits.Deployments > 0 && len(s.runs) >= limits.Deployments {
		return false
	}
	if limits.PerCluster == 0 {
		return true
	}
	n := 0
	for _, r := range s.runs {
		if r.provider == provider {
			n++
		}
	}
	return n < limits.PerCluster
}
