package drift

import (
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
)

// errNoSlot delays an evaluation: all comparison slots of the cluster are in use. The
// application is enqueued again when a slot is free.
var errNoSlot = deploy.Errorf(deploy.Conflict, "all comparison slots of the cluster are in use")

// slots limit the concurrent comparisons per cluster, so that a slow cluster does not
// occupy all workers.
type slots struct {
	each    int // slots per cluster
	requeue func(applicationID string)

	mu      sync.Mutex
	busy    map[string]int      // by cluster
	waiting map[string][]string // application IDs by cluster
}

func newSlots(each int, requeue func(string)) *slots {
	return &slots{each: each, requeue: requeue, busy: map[string]int{}, waiting: map[string][]string{}}
}

// acquire takes a slot of a cluster; false if none is free. The caller releases it.
func (l *slots) acquire(cluster, applicationID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[cluster] < l.each {
		l.busy[cluster]++
		return true
	}
	if !slices.Contains(l.waiting[cluster], applicationID) {
		l.waiting[cluster] = append(l.waiting[cluster], applicationID)
	}
	return false
}

// release returns a slot. The longest waiting application is enqueued again, and all of
// them when no slot is in use, since no later release would do it.
func (l *slots) release(cluster string) {
	l.mu.Lock()
	l.busy[cluster]--
	next := min(1, len(l.waiting[cluster]))
	if l.busy[cluster] == 0 {
		next = len(l.waiting[cluster])
	}
	ids := slices.Clone(l.waiting[cluster][:next])
	l.waiting[cluster] = slices.Delete(l.waiting[cluster], 0, next)
	l.mu.Unlock()
	for _, id := range ids {
		l.requeue(id)
	}
}
