package storetest

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
)

// testHolds: a hold starts and ends in the transaction of the deployment that causes it, each
// time with an event.
func testHolds(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.putApp(t, "other")
	create := func(id string, kind deploy.TriggerKind, edit func(*store.NewDeployment)) error {
		n := store.NewDeployment{Deployment: e.deployment(id, a, kind)}
		if edit != nil {
			edit(&n)
		}
		_, err := e.store.CreateDeployment(ctx, n)
		return err
	}
	hold := func(reason string) func(*store.NewDeployment) {
		return func(n *store.NewDeployment) {
			n.Hold = &deploy.Hold{Commit: n.Deployment.Trigger.Commit, By: "jane", Reason: reason, Head: "head"}
			n.Evaluated, n.First = "head", true
		}
	}
	held := func(want string) {
		t.Helper()
		apps, err := e.store.HeldApplications(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(apps) > 0 {
			got = apps[0].Hold.DeploymentID
		}
		if got != want {
			t.Errorf("held by deployment %q, want %q", got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	held("")
	must(create("commit", deploy.OnCommit, nil))
	must(create("back", deploy.OnCommand, hold("broken \x00 page")))
	held("back")
	got, err := e.store.Application(ctx, a.ID)
	must(err)
	want := &deploy.Hold{
		Commit: got.Hold.Commit, Git: a.Git, DeploymentID: "back", By: "jane", Reason: "broken \uFFFD page", Since: got.Hold.Since, Head: "head", Evaluated: "head",
	}
	if diff := cmp.Diff(want, got.Hold); diff != "" || got.Hold.Since.IsZero() || got.HeldAt() != "c0ffee0123-back" {
		t.Errorf("the hold (-want +got):\n%s", diff)
	}
	if d, err := e.store.Deployment(ctx, "commit"); err != nil || d.Status != deploy.Cancelled || d.SupersededBy != "back" {
		t.Errorf("what waited is %s, superseded by %q, %v", d.Status, d.SupersededBy, err)
	}
	none, other := "", "another"
	for _, at := range []*string{&none, &other} {
		wantKind(t, create("heal", deploy.OnOutOfSync, func(n *store.NewDeployment) { n.Held = at }), deploy.Conflict, "is held at was changed")
	}
	at := got.HeldAt()
	must(create("heal", deploy.OnOutOfSync, func(n *store.NewDeployment) { n.Held = &at }))
	must(create("chain", deploy.OnChain, nil))
	held("back")

	e.run(t, "back")
	must(create("further", deploy.OnCommand, hold("still broken")))
	held("further")
	open, err := e.store.OpenCommands(ctx, deploy.CommandCancel)
	if err != nil || len(open) != 1 || open[0].DeploymentID != "back" || open[0].ForceNoRollback {
		t.Errorf("cancels: %+v, %v, want one of the deployment that runs", open, err)
	}
	// The hold of this deployment was replaced before the deployment was cancelled.
	e.update(t, "back", func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "cancelled", e.clock.now()) })
	held("further")
	e.update(t, "further", func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "cancelled", e.clock.now()) })
	held("")

	must(create("again", deploy.OnCommand, hold("broken")))
	must(create("new", deploy.OnCommit, nil))
	held("")
	must(create("last", deploy.OnCommand, hold("broken")))
	must(e.store.DeleteApplication(ctx, a.ID))
	held("")

	events, err := e.store.Events(ctx, 0, 0)
	must(err)
	var kinds []deploy.EventType
	for _, ev := range events {
		if ev.Type == deploy.EventHeld || ev.Type == deploy.EventReleased {
			kinds = append(kinds, ev.Type)
		}
	}
	wantKinds := []deploy.EventType{
		deploy.EventHeld, deploy.EventHeld, // back, further
		deploy.EventReleased,                   // further was cancelled
		deploy.EventHeld, deploy.EventReleased, // again, new
		deploy.EventHeld, deploy.EventReleased, // last, cancelled with the application
	}
	if diff := cmp.Diff(wantKinds, kinds); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
}
