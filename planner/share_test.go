package planner

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// terms are rights to applications, with the terms that writes have.
type terms struct {
	mu   sync.Mutex
	held map[string]deploy.Term
}

// Own implements ownership.Rights.
func (r *terms) Own(ctx context.Context, key string) (ownership.Work, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	term, ok := r.held[key]
	return ownership.Work{Context: deploy.WithTerm(ctx, term), Done: func() {}}, ok
}

// Gained implements ownership.Rights.
func (r *terms) Gained() <-chan struct{} { return nil }

func (r *terms) set(key string, term deploy.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[key] = term
}

// TestPlansOnlyItsOwn: an application is planned by the replica that has the right to it, once it
// gets the right, and not with a term that is over.
func TestPlansOnlyItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		rights := &terms{held: map[string]deploy.Term{"mine": {Partition: 1}, "stale": {Partition: 2, Number: 9}}}
		e.rights, e.scan = rights, time.Hour
		e.start()
		for _, app := range []string{"mine", "theirs", "stale"} {
			e.create("d-"+app, app, time.Now())
		}
		e.wait(time.Minute)
		want := []string{"d-mine PLANNED", "d-theirs PENDING", "d-stale PENDING"}
		if diff := cmp.Diff(want, e.statuses("d-mine", "d-theirs", "d-stale")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		rights.set("theirs", deploy.Term{Partition: 3})
		e.rescan()
		e.wait(time.Minute)
		if got := e.get("d-theirs").Status; got != deploy.Planned {
			t.Errorf("after this replica got the right, the deployment is %s", got)
		}
	})
}
