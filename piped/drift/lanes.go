package drift

import (
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
)

// errNoLane is why a judgement is put off: as many comparisons as may be are under way
// in the cluster. Whoever gets it is judged again when one has ended.
var errNoLane = deploy.Errorf(deploy.Conflict, "others are compared first")

// lanes bound the comparisons that are under way in one cluster, so that one that is
// slow, or keeps silent, leaves workers to the others.
type lanes struct {
	each  int // how many there are in each cluster
	again func(applicationID string)

	mu      sync.Mutex
	busy    map[string]int      // by cluster
	waiting map[string][]string // applications, by cluster
}

func newLanes(each int, again func(string)) *lanes {
	return &lanes{each: each, again: again, busy: map[string]int{}, waiting: map[string][]string{}}
}

// enter takes a lane of a cluster for a comparison of an application; false if there is
// none now. Who has got one leaves it.
func (l *lanes) enter(cluster, applicationID string) bool {
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

// leave gives a lane back. The one that waits longest is judged again, and all of them
// when nobody is left who would tell the next one.
func (l *lanes) leave(cluster string) {
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
		l.again(id)
	}
}
