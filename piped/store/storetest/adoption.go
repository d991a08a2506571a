package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// testAdoptions lists adoptions and decides on them.
func testAdoptions(t *testing.T, e *env) {
	ctx, a, b := t.Context(), e.putApp(t, "a"), e.putApp(t, "b")
	list := func(app deploy.Application, token string, changes bool) deploy.Adoption {
		return deploy.Adoption{ApplicationID: app.ID, Token: token, RunningCommit: "c1", Objects: []deploy.AdoptedObject{{
			Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "web"}, Managers: []string{"kubectl"}, OwnerApplicationID: "o", Changes: changes,
		}}}
	}
	set := func(want bool, l deploy.Adoption) {
		t.Helper()
		if changed, err := e.store.SetAdoption(ctx, l); err != nil || changed != want {
			t.Fatalf("set: changed %v, %v; want %v", changed, err, want)
		}
	}
	set(true, list(b, "b1", false))
	first, _, err := e.store.Adoption(ctx, b.ID)
	if err != nil || first.Since.IsZero() {
		t.Fatalf("since %s, %v", first.Since, err)
	}
	set(true, list(a, "a1", true))
	set(false, list(a, "a1", true))
	set(true, list(b, "b2", true))
	got, err := e.store.Adoptions(ctx)
	want := []deploy.Adoption{list(b, "b2", true), list(a, "a1", true)} // b has waited longer
	for i := range got {
		want[i].Since = got[i].Since
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !got[0].Since.Equal(first.Since) {
		t.Errorf("listed since %s instead of %s, %v (-want +got):\n%s", got[0].Since, first.Since, err, diff)
	}
	_, err = e.store.SetAdoption(ctx, list(deploy.Application{ID: "nobody"}, "x", false))
	wantKind(t, err, deploy.NotFound, "nobody")

	decide := func(id string, app deploy.Application, accept bool, token string) error {
		t.Helper()
		c, err := e.store.CreateCommand(ctx, deploy.Command{ID: id, Type: deploy.CommandDecideAdoption, ApplicationID: app.ID, Accept: accept, Token: token})
		if err != nil || c.Accept != accept || c.Token != token {
			t.Fatalf("command %s: %+v, %v", id, c, err)
		}
		return e.store.DecideAdoption(ctx, c)
	}
	for _, app := range []deploy.Application{a, b} {
		if _, err := e.store.SetNotice(ctx, app.ID, "waits", nil); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, decide("old", b, true, "b1"), deploy.Illegal, "has changed since it was listed")
	wantKind(t, e.store.CheckDecision(ctx, b.ID, "b1"), deploy.Illegal, "has changed since it was listed")
	must(t, e.store.CheckDecision(ctx, b.ID, "b2"))
	must(t, decide("accept", b, true, "b2"))
	wantKind(t, decide("twice", b, false, "b2"), deploy.Illegal, "no decision")
	set(false, list(b, "b3", false)) // it is accepted already
	must(t, decide("reject", a, false, "a1"))
	wantKind(t, e.store.CheckDecision(ctx, a.ID, "a1"), deploy.Illegal, "no decision")

	for _, c := range []struct {
		app                       deploy.Application
		disabled, known, accepted bool
	}{{a, true, false, false}, {b, false, true, true}} {
		app, err := e.store.Application(ctx, c.app.ID)
		if err != nil || app.Disabled != c.disabled || app.Notice != "" {
			t.Errorf("%s is %+v, %v", c.app.ID, app, err)
		}
		if l, ok, err := e.store.Adoption(ctx, c.app.ID); err != nil || ok != c.known || l.Accepted != c.accepted {
			t.Errorf("the list of %s: %+v, %v, %v", c.app.ID, l, ok, err)
		}
	}
	for id, want := range map[string]deploy.CommandStatus{"accept": deploy.CommandSucceeded, "reject": deploy.CommandSucceeded, "old": deploy.CommandOpen} {
		if c, err := e.store.Command(ctx, id); err != nil || c.Status != want {
			t.Errorf("command %s is %s, %v", id, c.Status, err)
		}
	}
	must(t, e.store.DropAdoption(ctx, b.ID)) // not deleted, since it is accepted
	if _, ok, err := e.store.Adoption(ctx, b.ID); !ok || err != nil {
		t.Errorf("an accepted list was dropped: %v", err)
	}
	more := list(b, "b5", false) // not all of its objects were accepted
	more.Objects = append(more.Objects, deploy.AdoptedObject{Object: deploy.ObjectRef{Version: "v1", Kind: "Secret", Namespace: "n", Name: "web"}})
	set(true, more)
	set(false, more)
	if l, _, err := e.store.Adoption(ctx, b.ID); err != nil || l.Accepted || len(l.Objects) != 2 || l.Since.Before(first.Since) {
		t.Errorf("the list with one more object: %+v, %v", l, err)
	}
	must(t, e.store.CheckDecision(ctx, b.ID, "b5"))
	must(t, decide("more", b, true, "b5"))
	set(false, list(b, "b6", false)) // a part of the accepted list
	other := list(b, "b7", false)
	other.Objects[0].OwnerApplicationID = "another"
	set(true, other)
	must(t, decide("other", b, true, "b7"))
	set(true, list(a, "a2", false))
	must(t, e.store.DropAdoption(ctx, a.ID))
	if got, err := e.store.Adoptions(ctx); err != nil || len(got) != 0 {
		t.Errorf("in the end there are %v, %v", got, err)
	}
	must(t, e.store.DeleteApplication(ctx, b.ID)) // also deletes the decision
	set(false, list(b, "b4", false))              // found before the deletion
	if _, ok, err := e.store.Adoption(ctx, b.ID); ok || err != nil {
		t.Errorf("the list of a deleted application: %v, %v", ok, err)
	}
}
