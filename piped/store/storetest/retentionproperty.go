package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testRetentionProperty: of deployments with any ages, chains and references, exactly those
// that are not needed are deleted, and no reference to them remains.
func testRetentionProperty(t *testing.T, e *env) {
	round, left, removed := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		w := drawPast(rt, t, e, round)
		keep := rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(rt, "keep")
		want := w.needed(rt, keep)
		e.removeOld(t, keep)
		var got []string
		for _, d := range w.drawn {
			if e.there(t, d.id) {
				got = append(got, d.id)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("left (-want +got):\n%s", diff)
		}
		left, removed = left+len(got), removed+len(w.drawn)-len(got)
	})
	if left < round/2 || removed < round/2 {
		t.Errorf("the rounds show too little: %d are left, %d are removed", left, removed)
	}
	nothingDangles(t, e)
}

// past contains the rows that one round has written.
type past struct {
	env   *env
	apps  []deploy.Application
	drawn []drawnDeployment
}

// drawnDeployment is a random deployment. Its flags state which references to it exist.
type drawnDeployment struct {
	id, app, chain                   string
	Applied, RollsOn, Asked, Pending bool
}

func drawPast(rt *rapid.T, t *testing.T, e *env, round int) *past {
	w := &past{env: e}
	for i := range 2 {
		w.apps = append(w.apps, e.putApp(t, fmt.Sprintf("r%d-%d", round, i)))
	}
	chains := map[string]bool{}
	for i := range rapid.SampledFrom([]int{7, 6, 5, 3}).Draw(rt, "deployments") {
		a := rapid.SampledFrom(w.apps).Draw(rt, "application")
		d := drawnDeployment{id: fmt.Sprintf("r%d-d%d", round, i), app: a.ID}
		n := store.NewDeployment{Deployment: e.deployment(d.id, a, deploy.OnCommit)}
		if c := rapid.SampledFrom([]string{"", "", "", "", "c1", "c2"}).Draw(rt, "chain"); c != "" {
			d.chain = fmt.Sprintf("r%d-%s", round, c)
			n.Deployment.ChainID = d.chain
			if !chains[d.chain] {
				n.Chain = &deploy.Chain{ID: d.chain, Blocks: []deploy.ChainBlock{{}}}
			}
			chains[d.chain] = true
		}
		_, err := e.store.CreateDeployment(t.Context(), n)
		must(t, err)
		w.drawn = append(w.drawn, d)
		w.age(rt)
	}
	for i := range w.drawn {
		w.end(rt, t, &w.drawn[i])
		w.age(rt)
	}
	w.age(rt)
	if rapid.SampledFrom([]bool{false, false, true}).Draw(rt, "deleted") {
		must(t, e.store.DeleteApplication(t.Context(), w.apps[0].ID))
		e.route(t, "")
	}
	w.leavePending(t)
	return w
}

// age advances the clock by a random time, possibly 0.
func (w *past) age(rt *rapid.T) {
	w.env.pass(rapid.SampledFrom([]time.Duration{limit, limit / 2, 0}).Draw(rt, "time"))
}

// end ends a deployment or not, and creates references to it.
func (w *past) end(rt *rapid.T, t *testing.T, d *drawnDeployment) {
	ctx, e := t.Context(), w.env
	switch rapid.SampledFrom([]string{"failure", "failure", "failure", "success", "success", "none"}).Draw(rt, "end") {
	case "success":
		e.run(t, d.id)
		e.succeed(t, d.id)
	case "failure":
		e.fail(t, d.id)
	}
	seldom := func(what string) bool {
		return rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}).Draw(rt, what) == 7
	}
	if d.Applied = seldom("applied"); d.Applied {
		must(t, e.store.PutInventory(ctx, oldItem(d.id, d.app)))
	}
	if d.RollsOn = seldom("rolls on"); d.RollsOn {
		_, err := e.store.SaveRollout(ctx, oldRollout(d.id, d.app, deploy.RolloutProgressing))
		must(t, err)
	}
	if d.Asked = seldom("asked"); d.Asked || seldom("answered") {
		_, err := e.store.CreateCommand(ctx, deploy.Command{ID: "of-" + d.id, Type: deploy.CommandCancel, DeploymentID: d.id})
		must(t, err)
		if !d.Asked {
			must(t, e.store.FinishCommand(ctx, "of-"+d.id, deploy.CommandFailed, nil))
		}
	}
	d.Pending = seldom("pending")
	e.route(t, "")
}

// leavePending writes events that are not delivered.
func (w *past) leavePending(t *testing.T) {
	for _, d := range w.drawn {
		if d.Pending {
			must(t, w.env.store.Announce(t.Context(), deploy.Event{Key: "pending " + d.id, Type: deploy.EventStageStarted, DeploymentID: d.id, Payload: []byte(`{}`), At: w.env.clock.now()}))
		}
	}
}

// needed returns the IDs of the deployments that must be retained, by a second implementation
// of the rules.
func (w *past) needed(rt *rapid.T, keep int) (ids []string) {
	before := w.env.clock.now().Add(-limit)
	stored, apps := map[string]deploy.Deployment{}, map[string]deploy.Application{}
	inUse := map[string]bool{} // applications with an inventory
	for _, d := range w.drawn {
		found, err := w.env.store.Deployment(context.Background(), d.id)
		if err != nil {
			rt.Fatal(err)
		}
		stored[d.id] = found
		inUse[d.app] = inUse[d.app] || d.Applied
	}
	for _, a := range w.apps {
		found, err := w.env.store.Application(context.Background(), a.ID)
		if err != nil {
			rt.Fatal(err)
		}
		apps[a.ID] = found
	}
	own := func(d drawnDeployment) bool {
		this, app := stored[d.id], apps[d.app]
		later, successes := 0, 0
		for _, other := range stored {
			if other.ApplicationID == d.app && other.CompletedAt.After(this.CompletedAt) {
				later++
				if other.Status == deploy.Success {
					successes++
				}
			}
		}
		returnable := this.Status == deploy.Success && successes < 2
		command, err := w.env.store.Command(context.Background(), "of-"+d.id)
		lately := err == nil && !command.HandledAt.Before(before)
		last := app.LastSuccessful != nil && app.LastSuccessful.DeploymentID == d.id || app.LastTriggered.DeploymentID == d.id
		return !this.Status.Completed() || !this.CompletedAt.Before(before) || (later < keep || returnable) && (!app.Deleted || inUse[d.app]) ||
			last || d.Applied || d.RollsOn || d.Asked || lately || d.Pending
	}
	chains := map[string]bool{}
	for _, d := range w.drawn {
		chains[d.chain] = chains[d.chain] || own(d)
	}
	for _, d := range w.drawn {
		if own(d) || d.chain != "" && chains[d.chain] {
			ids = append(ids, d.id)
		}
	}
	return ids
}
