package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
)

// TestTurns: an application with many deployments lets each of the others run before
// its next one, even if its own are older.
func TestTurns(t *testing.T) {
	s := New(Config{Limits: func() Limits { return Limits{Deployments: 1} }, Logger: slog.New(slog.DiscardHandler)})
	wants := func(id, app string, age time.Duration) {
		s.updateWaiting(deploy.Deployment{
			ID: id, ApplicationID: app, Status: deploy.Planned, Provider: "one",
			Trigger: deploy.Trigger{At: time.Unix(1_700_000_000, 0).Add(-age)},
		})
	}
	wants("flood-0", "flood", time.Hour)
	wants("calm-0", "calm", time.Minute)
	wants("rare-0", "rare", 0)
	var order []string
	for i := range 6 {
		started := s.startable(t.Context())
		if len(started) != 1 {
			t.Fatalf("%d deployments started, want 1", len(started))
		}
		order = append(order, started[0].id)
		delete(s.runs, started[0].id)
		if strings.HasPrefix(started[0].id, "flood") {
			wants(fmt.Sprintf("flood-%d", i+1), "flood", time.Hour)
		}
	}
	if diff := cmp.Diff([]string{"flood-0", "calm-0", "rare-0", "flood-1", "flood-4", "flood-5"}, order); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
}

// TestNoApplicationStarves: no application is served twice while another one waits for
// a free slot of its provider, and no usable slot stays empty.
func TestNoApplicationStarves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		providers := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 8).Draw(rt, "provider of each application")
		limits := Limits{Deployments: rapid.IntRange(0, 4).Draw(rt, "in all"), PerCluster: rapid.IntRange(0, 3).Draw(rt, "per cluster")}
		s := New(Config{Limits: func() Limits { return limits }, Logger: slog.New(slog.DiscardHandler)})
		q := &queue{s: s, limits: limits, since: map[string]int{}, served: map[string][]int{}}
		for step := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if running := slices.Sorted(maps.Keys(s.runs)); len(running) > 0 && rapid.Bool().Draw(rt, "one ends") {
				delete(s.runs, rapid.SampledFrom(running).Draw(rt, "ended"))
			}
			app := rapid.IntRange(0, len(providers)-1).Draw(rt, "application")
			q.want(step, app, providers[app], rapid.IntRange(0, 1000).Draw(rt, "age"))
			if err := q.start(step); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// queue checks what a scheduler starts.
type queue struct {
	s      *Scheduler
	limits Limits
	since  map[string]int   // step since which an application waits
	served map[string][]int // steps in which an application was served
}

// want enqueues a deployment of an application, unless it has an active one.
func (q *queue) want(step, app, provider, age int) {
	id := fmt.Sprintf("app-%d", app)
	if _, waits := q.since[id]; waits || q.s.runs[id] != nil {
		return
	}
	q.since[id] = step
	q.s.updateWaiting(deploy.Deployment{
		ID: id, ApplicationID: id, Status: deploy.Planned, Provider: fmt.Sprint(provider),
		Trigger: deploy.Trigger{At: time.Unix(1_700_000_000, 0).Add(-time.Duration(age) * time.Second)},
	})
}

// start lets the scheduler start what it can.
func (q *queue) start(step int) error {
	started := q.s.startable(context.Background())
	for _, r := range started {
		delete(q.since, r.id)
		q.served[r.id] = append(q.served[r.id], step)
	}
	for id, since := range q.since {
		provider := q.s.waiting[id].Provider
		if q.s.slotFree(q.limits, nil, provider) {
			return fmt.Errorf("step %d: %s waits since step %d although there is room", step, id, since)
		}
		room := q.s.slotFree(Limits{PerCluster: q.limits.PerCluster}, nil, provider)
		for _, r := range started {
			slots := len(q.served[r.id]) - slices.IndexFunc(q.served[r.id], func(at int) bool { return at >= since })
			if slots > 1 && (room || r.provider == provider) {
				return fmt.Errorf("step %d: %s was given its slot number %d since step %d, when %s began to wait", step, r.id, slots, since, id)
			}
		}
	}
	return nil
}
