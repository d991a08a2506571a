package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testLoad: open work is counted, with the time of the oldest item of each kind.
func testLoad(t *testing.T, e *env) {
	ctx := t.Context()
	want := store.Load{Deployments: map[deploy.Status]store.Backlog{}}
	expect := func(when string) {
		t.Helper()
		got, err := e.store.Load(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	expect("at first")
	a, b := e.putApp(t, "web"), e.putApp(t, "api")
	running, waiting := e.create(t, "d1", a), e.create(t, "d2", a)
	later := e.create(t, "d3", b)
	e.run(t, running.ID)
	want.Deployments[deploy.Running] = store.Backlog{Count: 1, Since: running.Trigger.At}
	want.Deployments[deploy.Pending] = store.Backlog{Count: 2, Since: waiting.Trigger.At}
	c, err := e.store.CreateCommand(ctx, deploy.Command{ID: "c1", Type: deploy.CommandSync, ApplicationID: a.ID})
	must(t, err)
	want.Commands = store.Backlog{Count: 1, Since: c.CreatedAt}
	r, err := e.store.SaveRollout(ctx, deploy.Rollout{
		ID: "r1", ApplicationID: a.ID, DeploymentID: running.ID, Workload: deploy.ObjectRef{Kind: "Deployment", Name: "web"}, Phase: deploy.RolloutApplied,
	})
	must(t, err)
	want.Rollouts = store.Backlog{Count: 1, Since: r.CreatedAt}
	_, err = e.store.SaveRollout(ctx, deploy.Rollout{ // by an autoscaler: not open work
		ID: "s1", Kind: deploy.RolloutKindScaling, ApplicationID: a.ID, Workload: r.Workload, Phase: deploy.RolloutProgressing,
	})
	must(t, err)
	events, err := e.store.Events(ctx, 0, 0)
	must(t, err)
	want.Outbox = store.Backlog{Count: len(events), Since: events[0].At}
	expect("with work of every kind")

	e.update(t, later.ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "by jane", e.clock.now()) })
	want.Deployments[deploy.Pending] = store.Backlog{Count: 1, Since: waiting.Trigger.At}
	want.Outbox.Count++
	r.Phase = deploy.RolloutComplete
	_, err = e.store.SaveRollout(ctx, r)
	must(t, err)
	want.Rollouts = store.Backlog{}
	want.Outbox.Count++
	expect("when some of it has ended")
	if n := e.store.WaitingWriters(); n != 0 {
		t.Errorf("%d writers wait", n)
	}
}

// testEndedDeployments: ended deployments are listed from a time on, in the order of their
// ends.
func testEndedDeployments(t *testing.T, e *env) {
	a := e.putApp(t, "web")
	var ends []time.Time
	for _, id := range []string{"d3", "d1", "d2"} {
		d := e.create(t, id, a)
		ended := e.update(t, d.ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "by jane", e.clock.now()) })
		ends = append(ends, ended.CompletedAt)
	}
	e.create(t, "d4", a)
	ids := func(since time.Time, limit int) (out []string) {
		t.Helper()
		found, err := e.store.EndedDeployments(t.Context(), since, limit)
		must(t, err)
		for _, d := range found {
			out = append(out, d.ID)
		}
		return out
	}
	for _, c := range []struct {
		since time.Time
		limit int
		want  []string
	}{{time.Time{}, 0, []string{"d3", "d1", "d2"}}, {ends[1], 0, []string{"d1", "d2"}}, {ends[0], 2, []string{"d3", "d1"}}, {ends[2].Add(time.Millisecond), 0, nil}} {
		if diff := cmp.Diff(c.want, ids(c.since, c.limit)); diff != "" {
			t.Errorf("since %s (-want +got):\n%s", c.since, diff)
		}
	}
}
