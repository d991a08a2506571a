package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// testProperty: after any writes of concurrent writers the log contains only legal
// transitions, an application never has two active deployments, a command creates at most one
// deployment, and the outbox has every transition exactly once, in order.
func testProperty(t *testing.T, e *env) {
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		w := newWriteRound(rt, e, round)
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 14).Draw(rt, "steps")
		for i, st := range steps {
			w.do(rt, i, st)
			w.checkActive(rt)
		}
		for _, id := range w.deployments {
			w.checkLog(rt, id)
		}
		w.checkOutbox(rt)
		w.checkCommands(rt)
	})
}

// step is one action of a round: create a deployment, or let several writers change
// deployments concurrently.
type step struct {
	Create    bool
	App       int
	Kind      deploy.TriggerKind
	Supersede bool
	Command   bool
	Writers   []move
}

// move is the action of one writer on one deployment.
type move struct {
	Deployment int
	Action     string
}

var actions = []string{"plan", "start", "start stage", "finish stage", "fail stage", "roll back", "succeed", "end", "fail", "cancel", "note", "jump"}

func drawStep(rt *rapid.T) step {
	s := step{
		Create:    rapid.IntRange(0, 2).Draw(rt, "create") == 0,
		App:       rapid.IntRange(0, 1).Draw(rt, "app"),
		Kind:      rapid.SampledFrom([]deploy.TriggerKind{deploy.OnCommit, deploy.OnCommand, deploy.OnOutOfSync}).Draw(rt, "kind"),
		Supersede: rapid.Bool().Draw(rt, "supersede"),
		Command:   rapid.Bool().Draw(rt, "command"),
	}
	if !s.Create {
		s.Writers = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{rapid.IntRange(0, 5).Draw(rt, "deployment"), rapid.SampledFrom(actions).Draw(rt, "action")}
		}), 1, 4).Draw(rt, "writers")
	}
	return s
}

// writeRound contains the objects that one round writes.
type writeRound struct {
	env         *env
	ctx         context.Context
	prefix      string
	apps        []deploy.Application
	command     string
	deployments []string
	byCommand   int
}

func newWriteRound(rt *rapid.T, e *env, round int) *writeRound {
	w := &writeRound{env: e, ctx: context.Background(), prefix: fmt.Sprintf("r%d", round)}
	for i := range 2 {
		a := app(fmt.Sprintf("%s-%d", w.prefix, i))
		if _, err := e.store.PutApplication(w.ctx, a); err != nil {
			rt.Fatal(err)
		}
		w.apps = append(w.apps, a)
	}
	w.command = "command-" + w.prefix
	if _, err := e.store.CreateCommand(w.ctx, deploy.Command{ID: w.command, Type: deploy.CommandSync}); err != nil {
		rt.Fatal(err)
	}
	return w
}

func (w *writeRound) do(rt *rapid.T, i int, st step) {
	if st.Create {
		w.create(rt, i, st)
		return
	}
	if len(w.deployments) == 0 {
		return
	}
	var g errgroup.Group
	for _, m := range st.Writers {
		id := w.deployments[m.Deployment%len(w.deployments)]
		g.Go(func() error {
			_, err := w.env.store.UpdateDeployment(w.ctx, id, func(d *deploy.Deployment) error { return w.act(d, m.Action) })
			if err == nil || deploy.IsKind(err, deploy.Illegal) || deploy.IsKind(err, deploy.Conflict) || deploy.IsKind(err, deploy.NotFound) {
				return nil // a rejection is correct; accepted writes are checked below
			}
			return fmt.Errorf("%s %s: %w", m.Action, id, err)
		})
	}
	if err := g.Wait(); err != nil {
		rt.Fatal(err)
	}
}

func (w *writeRound) create(rt *rapid.T, i int, st step) {
	n := store.NewDeployment{Deployment: w.env.deployment(fmt.Sprintf("%s-d%d", w.prefix, i), w.apps[st.App], st.Kind), Supersede: st.Supersede}
	if st.Command {
		n.CommandID = w.command
	}
	d, err := w.env.store.CreateDeployment(w.ctx, n)
	switch {
	case err == nil:
		w.deployments = append(w.deployments, d.ID)
		if st.Command {
			w.byCommand++
		}
	case !st.Command || !deploy.IsKind(err, deploy.Conflict):
		rt.Fatal(err)
	}
}

func (w *writeRound) act(d *deploy.Deployment, action string) error {
	now := w.env.clock.now()
	switch action {
	case "plan":
		return d.Plan(plan(), now)
	case "start":
		return d.Start(now)
	case "start stage":
		return d.StartStage("sync", now)
	case "finish stage":
		return d.FinishStage("sync", deploy.StageSuccess, "", now)
	case "fail stage":
		return d.FinishStage("sync", deploy.StageFailure, "", now)
	case "roll back":
		return d.BeginRollback(deploy.Failure, "broken", now)
	case "succeed":
		return d.Complete(deploy.Success, "", now)
	case "end": // two moves in one transaction
		if err := d.FinishStage("sync", deploy.StageSuccess, "", now); err != nil {
			return err
		}
		return d.Complete(deploy.Success, "", now)
	case "fail":
		return d.Complete(deploy.Failure, "", now)
	case "cancel":
		return d.Complete(deploy.Cancelled, "", now)
	case "jump": // without the checks of package deploy: the store must reject it
		d.Status = deploy.RollingBack
		return nil
	default:
		return increment(d)
	}
}

func (w *writeRound) checkActive(rt *rapid.T) {
	for _, a := range w.apps {
		active, _, err := w.env.store.ListDeployments(w.ctx, store.DeploymentQuery{ApplicationIDs: []string{a.ID},
			Statuses: []deploy.Status{deploy.Planned, deploy.Running, deploy.RollingBack}})
		if err != nil {
			rt.Fatal(err)
		}
		if len(active) > 1 {
			rt.Fatalf("application %s has the active deployments %v", a.ID, ids(active))
		}
	}
}

// checkLog replays a deployment's transition log.
func (w *writeRound) checkLog(rt *rapid.T, id string) {
	d, err := w.env.store.Deployment(w.ctx, id)
	if err != nil {
		rt.Fatal(err)
	}
	log, err := w.env.store.Transitions(w.ctx, id)
	if err != nil {
		rt.Fatal(err)
	}
	at := map[string]string{}
	for _, m := range log {
		if m.From != at[m.StageID] {
			rt.Fatalf("%s: the log goes on from %q, but %q was at %q", id, m.From, m.StageID, at[m.StageID])
		}
		err := deploy.CheckTransition(deploy.Status(m.From), deploy.Status(m.To))
		if m.StageID != "" {
			err = deploy.CheckStageTransition(deploy.StageStatus(m.From), deploy.StageStatus(m.To))
		}
		if err != nil {
			rt.Fatalf("%s: %v", id, err)
		}
		at[m.StageID] = m.To
	}
	want := map[string]string{"": string(d.Status)}
	for _, st := range d.Stages {
		want[st.ID] = string(st.Status)
	}
	if diff := cmp.Diff(want, at); diff != "" {
		rt.Fatalf("%s: what is stored and where the log leads (-stored +log):\n%s", id, diff)
	}
}

// checkOutbox compares the events with the transition logs, in order for each deployment.
func (w *writeRound) checkOutbox(rt *rapid.T) {
	events, err := w.env.store.Events(w.ctx, 0, 0)
	if err != nil {
		rt.Fatal(err)
	}
	got, want := map[string][]string{}, map[string][]string{}
	var seqs []int64
	for _, ev := range events {
		got[ev.DeploymentID] = append(got[ev.DeploymentID], ev.Key)
		seqs = append(seqs, ev.Seq)
	}
	for _, id := range w.deployments {
		log, err := w.env.store.Transitions(w.ctx, id)
		if err != nil {
			rt.Fatal(err)
		}
		for _, m := range log {
			for _, ev := range deploy.EventsFor(&deploy.Deployment{ID: id}, m) {
				want[id] = append(want[id], ev.Key)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("events (-log +outbox):\n%s", diff)
	}
	// The next round starts with an empty outbox.
	if err := w.env.store.RouteEvents(w.ctx, seqs); err != nil {
		rt.Fatal(err)
	}
}

func (w *writeRound) checkCommands(rt *rapid.T) {
	c, err := w.env.store.Command(w.ctx, w.command)
	if err != nil {
		rt.Fatal(err)
	}
	if answered := c.Status != deploy.CommandOpen; w.byCommand > 1 || answered != (w.byCommand == 1) {
		rt.Fatalf("the command is %s and made %d deployments", c.Status, w.byCommand)
	}
}
