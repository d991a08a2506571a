package scheduler

import (
	"cmp"
	"context"
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
// full provider does not block others. Deployments of other replicas are left waiting.
func (s *Scheduler) startable(ctx context.Context) []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	limits := s.Limits()
	order := s.startOrder(limits)
	var out []*run
	var elsewhere map[string]int
	for _, id := range order {
		d := s.waiting[id]
		if d.Status == deploy.Planned {
			if elsewhere == nil { // after the interrupted ones
				elsewhere = s.elsewhere()
			}
			if !s.slotFree(limits, elsewhere, d.Provider) {
				continue
			}
		}
		work, ok := s.Rights.Own(ctx, d.ApplicationID)
		if !ok {
			continue
		}
		r := newRun(s, d, work)
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

// elsewhere returns how many deployments run in other replicas, by provider, as far as this one knows.
// s.mu is held.
func (s *Scheduler) elsewhere() map[string]int {
	n := map[string]int{}
	for _, d := range s.waiting {
		if d.Status != deploy.Planned {
			n[d.Provider]++
		}
	}
	return n
}

// slotFree reports whether one more deployment may run on provider. What runs elsewhere is counted
// exactly when the deployment starts. s.mu is held.
func (s *Scheduler) slotFree(limits Limits, elsewhere map[string]int, provider string) bool {
	total := len(s.runs)
	for _, n := range elsewhere {
		total += n
	}
	if limits.Deployments > 0 && total >= limits.Deployments {
		return false
	}
	if limits.PerCluster == 0 {
		return true
	}
	n := elsewhere[provider]
	for _, r := range s.runs {
		if r.provider == provider {
			n++
		}
	}
	return n < limits.PerCluster
}
