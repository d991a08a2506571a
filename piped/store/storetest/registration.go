package storetest

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// testRegistration adds an application, deletes it and adds it again.
func testRegistration(t *testing.T, e *env) {
	ctx, a := t.Context(), app("web")
	a.Registration = deploy.Registration{By: "ann", At: e.clock.now(), Provider: "c"}
	a.Sync = deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "added"}
	feed := e.store.Watch(deploy.TopicRegistration)
	defer feed.Close()
	announced := func(id string) {
		t.Helper()
		want := []deploy.Change{{Topic: deploy.TopicRegistration, ID: id, ApplicationID: id}}
		if diff := cmp.Diff(want, feed.Take()); diff != "" {
			t.Errorf("announced (-want +got):\n%s", diff)
		}
	}
	stored := func(want deploy.Application) {
		t.Helper()
		got, err := e.store.Application(ctx, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(deploy.Application{}, "CreatedAt", "UpdatedAt"), cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	}
	must(t, e.store.AddApplication(ctx, a))
	stored(a)
	announced(a.ID)
	wantKind(t, e.store.AddApplication(ctx, a), deploy.Exists, "exists already")

	second := a
	second.ID = "kept" // another ID for the same place
	wantKind(t, e.store.AddApplication(ctx, second), deploy.Exists, a.ID+" already: delete that one first")
	if at, err := e.store.ApplicationAt(ctx, a.Git); err != nil || at.ID != a.ID {
		t.Errorf("at its place is %s, %v", at.ID, err)
	}
	_, err := e.store.ApplicationAt(ctx, deploy.GitPath{RepoID: a.Git.RepoID, Dir: "nowhere", ConfigFile: "app.pipecd.yaml"})
	wantKind(t, err, deploy.NotFound, "there is no application at nowhere/app.pipecd.yaml")

	must(t, e.store.SetRegisteredProvider(ctx, a.ID, "d"))
	announced(a.ID)
	must(t, e.store.SetRegisteredProvider(ctx, a.ID, "d")) // unchanged
	a.Registration.Provider = "d"
	stored(a)
	if _, err := e.store.PutApplication(ctx, app("web")); err != nil { // keeps the registration
		t.Fatal(err)
	}
	stored(a)

	e.create(t, "first", a)
	e.run(t, "first")
	e.succeed(t, "first")
	must(t, e.store.SetDisabled(ctx, a.ID, true))
	must(t, e.store.DeleteApplication(ctx, a.ID))
	feed.Take()
	wantKind(t, e.store.DeleteApplication(ctx, a.ID), deploy.NotFound, "is deleted")
	wantKind(t, e.store.SetDisabled(ctx, a.ID, false), deploy.NotFound, "is deleted")
	wantKind(t, e.store.SetRegisteredProvider(ctx, a.ID, ""), deploy.NotFound, "is deleted")
	_, err = e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("late", a, deploy.OnCommit)})
	wantKind(t, err, deploy.Illegal, "is deleted: add it again first")
	must(t, e.store.SetEvaluatedCommit(ctx, "c9", map[string]string{a.ID: ""})) // ignored: it is deleted

	back := app("web")
	back.Description, back.Sync = "again", deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "added again"}
	back.Registration = deploy.Registration{By: "bob", At: e.clock.now()}
	must(t, e.store.AddApplication(ctx, back))
	announced(a.ID)
	got, err := e.store.Application(ctx, a.ID)
	if err != nil || got.LastSuccessful == nil || got.LastSuccessful.DeploymentID != "first" {
		t.Fatalf("its last success is %+v, %v", got.LastSuccessful, err)
	}
	back.LastSuccessful, back.LastTriggered = got.LastSuccessful, got.LastTriggered
	stored(back) // enabled, without an evaluated commit

	wantKind(t, e.store.AddApplication(ctx, deploy.Application{ID: "x"}), deploy.Invalid, "needs an ID and a name")
	wantKind(t, e.store.SetRegisteredProvider(ctx, "nobody", "c"), deploy.NotFound, "nobody")
	wantKind(t, e.store.DeleteApplication(ctx, "nobody"), deploy.NotFound, "nobody")
}

// testRegistrationEndsWhatWaits: the transaction that disables or deletes an application ends
// its waiting deployments; a running one continues.
func testRegistrationEndsWhatWaits(t *testing.T, e *env) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		end    func(id string) error
		status deploy.Status
		reason string
	}{
		"disabled": {func(id string) error { return e.store.SetDisabled(ctx, id, true) }, deploy.Failure, "The application was disabled before the deployment started"},
		"deleted":  {func(id string) error { return e.store.DeleteApplication(ctx, id) }, deploy.Cancelled, "The application was deleted before the deployment started"},
	} {
		a := e.putApp(t, name)
		e.create(t, name+"-done", a)
		e.run(t, name+"-done")
		e.succeed(t, name+"-done")
		e.create(t, name+"-runs", a)
		e.run(t, name+"-runs")
		waits := e.deployment(name+"-waits", a, deploy.OnCommit)
		waits.Trigger.Commit.Hash = "c2"
		if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: waits}); err != nil {
			t.Fatal(err)
		}
		must(t, c.end(a.ID))
		d, err := e.store.Deployment(ctx, name+"-waits")
		if err != nil || d.Status != c.status || d.StatusReason != c.reason {
			t.Errorf("%s: what waits is %s (%s), %v", name, d.Status, d.StatusReason, err)
		}
		if d, err = e.store.Deployment(ctx, name+"-runs"); err != nil || d.Status != deploy.Running {
			t.Errorf("%s: what runs is %s, %v", name, d.Status, err)
		}
	}
	// The commit of the waiting deployment is evaluated again, but not that of an application
	// without one.
	got, err := e.store.Application(ctx, "app-disabled")
	if err != nil || got.EvaluatedCommit != got.LastSuccessful.Trigger.Commit.Hash {
		t.Errorf("the evaluated commit is %q, %v", got.EvaluatedCommit, err)
	}
	idle := e.putApp(t, "idle")
	must(t, e.store.SetEvaluatedCommit(ctx, "c7", map[string]string{idle.ID: ""}))
	must(t, e.store.SetDisabled(ctx, idle.ID, true))
	must(t, e.store.SetEvaluatedCommit(ctx, "c8", map[string]string{idle.ID: "c7"})) // ignored while it is disabled
	if got, err = e.store.Application(ctx, idle.ID); err != nil || got.EvaluatedCommit != "c7" {
		t.Errorf("the evaluated commit of one where nothing waited is %q, %v", got.EvaluatedCommit, err)
	}
	_, err = e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("late", idle, deploy.OnCommit)})
	wantKind(t, err, deploy.Illegal, "is disabled: enable it first")
}

func testAgent(t *testing.T, e *env) {
	ctx := t.Context()
	feed := e.store.Watch(deploy.TopicRegistration)
	defer feed.Close()
	if got, err := e.store.Agent(ctx); err != nil || got != (deploy.AgentRecord{}) {
		t.Errorf("at first: %+v, %v", got, err)
	}
	first, err := e.store.UpdateAgent(ctx, func(*deploy.AgentRecord) {})
	if err != nil || first.CreatedAt.IsZero() || !first.UpdatedAt.Equal(first.CreatedAt) {
		t.Errorf("made: %+v, %v", first, err)
	}
	second, err := e.store.UpdateAgent(ctx, func(a *deploy.AgentRecord) { a.Name, a.Description, a.Disabled = "prod", "the shop", true })
	want := deploy.AgentRecord{Name: "prod", Description: "the shop", Disabled: true, CreatedAt: first.CreatedAt, UpdatedAt: second.UpdatedAt}
	if err != nil || second != want || !second.UpdatedAt.After(first.UpdatedAt) {
		t.Errorf("changed: %+v, %v", second, err)
	}
	if got, err := e.store.Agent(ctx); err != nil || got != want {
		t.Errorf("read: %+v, %v", got, err)
	}
	if diff := cmp.Diff([]deploy.Change{{Topic: deploy.TopicRegistration}}, feed.Take()); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if same, err := e.store.UpdateAgent(ctx, func(a *deploy.AgentRecord) { a.Disabled = true }); err != nil || same != want {
		t.Errorf("not changed: %+v, %v", same, err)
	}
	if again := feed.Take(); again != nil {
		t.Errorf("announced without a change: %v", again)
	}
	app := e.putApp(t, "web")
	_, err = e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("d1", app, deploy.OnCommit)})
	wantKind(t, err, deploy.Illegal, "the agent is disabled") // although the decision came earlier
	if _, err := e.store.UpdateAgent(ctx, func(a *deploy.AgentRecord) { a.Disabled = false }); err != nil {
		t.Fatal(err)
	}
	e.create(t, "d1", app)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testDecidedBefore: a deployment is not created if its decision was based on an outdated
// evaluated commit.
func testDecidedBefore(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	must(t, e.store.SetEvaluatedCommit(ctx, "c1", map[string]string{a.ID: ""}))
	for _, c := range []struct {
		id        string
		base      *string
		keep      bool
		made      bool
		evaluated string
	}{
		{"late", new("c0"), false, false, "c1"},
		{"kept", nil, true, true, "c1"},
		{"decided", new("c1"), false, true, "c9"},
	} {
		n := store.NewDeployment{Deployment: e.deployment(c.id, a, deploy.OnCommit), Base: c.base, KeepEvaluated: c.keep, Evaluated: "c9"}
		if _, err := e.store.CreateDeployment(ctx, n); c.made {
			must(t, err)
		} else {
			wantKind(t, err, deploy.Conflict, "was disabled or added again")
		}
		_, err := e.store.Deployment(ctx, c.id)
		if deploy.IsKind(err, deploy.NotFound) == c.made {
			t.Errorf("%s: made is not %v: %v", c.id, c.made, err)
		}
		if got, err := e.store.Application(ctx, a.ID); err != nil || got.EvaluatedCommit != c.evaluated {
			t.Errorf("%s: the evaluated commit is %q, want %q, %v", c.id, got.EvaluatedCommit, c.evaluated, err)
		}
	}
}
