package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Limits bound how much runs at once; zero means no limit.
type Limits struct {
	Deployments int // in all
	PerCluster  int // per platform provider
}

// turns says when each application was last given a slot: it is how they take
// turns. Only one deployment of an application waits at a time, so one that
// always has another deployment to run lets each of the others run once before
// its next.
type turns struct {
	given int            // slots in this process
	last  map[string]int // by application ID: the number of the slot it was last given
}

func (t *turns) give(applicationID string) {
	t.given++
	t.last[applicationID] = t.given
}

// startable takes the deployments to start now out of the waiting ones and
// books their slots: that of the application which has waited longest since its
// last turn first, then the oldest. A provider that is full holds up no other.
// What was interrupted goes before all and whatever the limits say: it held a
// slot already.
func (s *Scheduler) startable() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	limits := s.Limits()
	order := s.inTurn(limits)
	var out []*run
	for _, id := range order {
		d := s.waiting[id]
		if d.Status == deploy.Planned && !s.slotFree(limits, d.Provider) {
			continue
		}
		r := newRun(s, d)
		s.runs[d.ID] = r
		delete(s.waiting, d.ID)
		s.turns.give(d.ApplicationID)
		out = append(out, r)
	}
	return out
}

// inTurn returns the IDs of the waiting deployments in the order of their turns;
// those that have to wait for a slot in any case are left out. s.mu is held.
func (s *Scheduler) inTurn(limits Limits) []string {
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
