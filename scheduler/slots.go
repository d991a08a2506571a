package scheduler

import (
	"cmp"
	"maps"
	"slices"

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
	rank := func(d deploy.Deployment) int {
		if d.Status == deploy.Planned {
			return 1
		}
		return 0
	}
	order := slices.SortedFunc(maps.Values(s.waiting), func(a, b deploy.Deployment) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(s.turns.last[a.ApplicationID], s.turns.last[b.ApplicationID]),
			a.Trigger.At.Compare(b.Trigger.At), cmp.Compare(a.ID, b.ID))
	})
	limits := s.Limits()
	var out []*run
	for _, d := range order {
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
