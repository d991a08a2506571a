package storetest

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
)

func testCandidates(t *testing.T, e *env) {
	ctx := t.Context()
	candidate := func(repo, dir string) deploy.Candidate {
		return deploy.Candidate{
			Git:  deploy.GitPath{RepoID: repo, Remote: "file:///" + repo, Branch: "main", Dir: dir, ConfigFile: "app.pipecd.yaml"},
			Name: dir, Kind: "KubernetesApp", Labels: map[string]string{"team": "core"}, State: deploy.CandidateUnregistered, Reason: "nothing selects it",
		}
	}
	a, b, c := candidate("one", "a"), candidate("one", "b"), candidate("two", "c")
	for _, step := range []struct {
		name    string
		repo    string
		set     []deploy.Candidate
		changed bool
		want    []deploy.Candidate
	}{
		{"none of a repository that had none", "two", nil, false, nil},
		{"first", "two", []deploy.Candidate{c}, true, []deploy.Candidate{c}},
		{"of another repository", "one", []deploy.Candidate{b, a}, true, []deploy.Candidate{a, b, c}},
		{"the same in another order", "one", []deploy.Candidate{a, b}, false, []deploy.Candidate{a, b, c}},
		{"fewer", "one", []deploy.Candidate{b}, true, []deploy.Candidate{b, c}},
		{"none", "one", nil, true, []deploy.Candidate{c}},
		{"none again", "one", []deploy.Candidate{}, false, []deploy.Candidate{c}},
	} {
		changed, err := e.store.SetCandidates(ctx, step.repo, step.set)
		if err != nil || changed != step.changed {
			t.Errorf("%s: changed %v, error %v", step.name, changed, err)
		}
		got, err := e.store.Candidates(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func testNotice(t *testing.T, e *env) {
	ctx, a, b := t.Context(), e.putApp(t, "a"), e.putApp(t, "b")
	event := func(key string) *deploy.Event {
		return &deploy.Event{Key: key, Type: deploy.EventSelfHealStopped, ApplicationID: a.ID, Payload: []byte(`{}`), At: e.clock.now()}
	}
	for _, step := range []struct {
		notice  string
		event   *deploy.Event
		changed bool
	}{
		{"", event("nothing"), false},
		{"stopped", event("one"), true},
		{"stopped", event("two"), false},
		{"", event("three"), true},
		{"stopped", event("one"), true}, // announced before
		{"stopped again", event("four"), true},
		{"stopped quietly", nil, true},
	} {
		changed, err := e.store.SetNotice(ctx, a.ID, step.notice, step.event)
		if err != nil || changed != step.changed {
			t.Errorf("set %q: changed %v, error %v", step.notice, changed, err)
		}
		if got, err := e.store.Application(ctx, a.ID); err != nil || got.Notice != step.notice || changed && got.NoticeAt.Before(got.CreatedAt) {
			t.Errorf("set %q: the application says %q since %s, %v", step.notice, got.Notice, got.NoticeAt, err)
		}
	}
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, ev := range events {
		keys = append(keys, ev.Key)
	}
	if diff := cmp.Diff([]string{"one", "four"}, keys); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	a.Description = "changed in Git"
	if _, err := e.store.PutApplication(ctx, a); err != nil {
		t.Fatal(err)
	}
	if got, err := e.store.Application(ctx, a.ID); err != nil || got.Notice != "stopped quietly" {
		t.Errorf("after a change in Git the application says %q, %v", got.Notice, err)
	}
	_, err = e.store.SetNotice(ctx, "nobody", "x", nil)
	wantKind(t, err, deploy.NotFound, "no application nobody")

	// DriftedApplications returns those with a notice or out of sync that are not deleted.
	drifted, gone := e.putApp(t, "drifted"), e.putApp(t, "gone")
	for _, id := range []string{drifted.ID, gone.ID} {
		if _, err := e.store.SetSyncState(ctx, id, deploy.SyncState{Status: deploy.OutOfSync}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.store.DeleteApplication(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ ask, want []string }{
		"all":   {nil, []string{a.ID, drifted.ID}},
		"these": {[]string{gone.ID, drifted.ID, b.ID, "nobody"}, []string{drifted.ID}},
	} {
		apps, err := e.store.DriftedApplications(ctx, c.ask...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, app := range apps {
			got = append(got, app.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s drifted (-want +got):\n%s", name, diff)
		}
	}
}

func testCountTriggered(t *testing.T, e *env) {
	ctx, a, other := t.Context(), e.putApp(t, "a"), e.putApp(t, "other")
	at := map[string]time.Time{}
	for _, c := range []struct {
		id   string
		app  deploy.Application
		kind deploy.TriggerKind
	}{
		{"heal-1", a, deploy.OnOutOfSync}, {"commit", a, deploy.OnCommit}, {"heal-2", a, deploy.OnOutOfSync}, {"heal-3", a, deploy.OnOutOfSync},
		{"elsewhere", other, deploy.OnOutOfSync}, {"later", a, deploy.OnCommit},
	} {
		d := e.deployment(c.id, c.app, c.kind)
		d.Trigger.Commit.Hash = "head"
		if c.id == "heal-3" {
			d.Trigger.Commit.Hash = "newer"
		}
		if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
			t.Fatal(err)
		}
		at[c.id] = d.Trigger.At.UTC().Truncate(time.Millisecond)
	}
	for name, c := range map[string]struct {
		commit string
		since  time.Time
		want   int
	}{
		"of a commit, ever":        {"head", time.Time{}, 2},
		"of any, ever":             {"", time.Time{}, 3},
		"of any, since the second": {"", at["heal-2"], 2},
		"of any, after the last":   {"", at["heal-3"].Add(time.Millisecond), 0},
	} {
		if got, err := e.store.CountTriggered(ctx, a.ID, deploy.OnOutOfSync, c.commit, c.since); err != nil || got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
	for kind, want := range map[deploy.TriggerKind]time.Time{deploy.OnCommit: at["later"], deploy.OnOutOfSync: at["heal-3"], deploy.OnChain: {}} {
		if got, err := e.store.LastTriggered(ctx, a.ID, kind); err != nil || !got.Equal(want) {
			t.Errorf("last %s at %s, %v, want %s", kind, got, err, want)
		}
	}
}

// testBatches: an item of a batch that cannot be stored does not affect the other items.
func testBatches(t *testing.T, e *env) {
	ctx := t.Context()
	const n = 120
	apps := make([]deploy.Application, n)
	for i := range apps {
		apps[i] = app(numbered("app", n-i))
	}
	apps[7].Name = ""
	put := func() ([]bool, []error) { return e.store.PutApplications(ctx, apps) }
	changed, errs := put()
	for i := range apps {
		if (errs[i] != nil) != (i == 7) || changed[i] == (i == 7) {
			t.Errorf("put %s: changed %v, error %v", apps[i].ID, changed[i], errs[i])
		}
	}
	wantKind(t, errs[7], deploy.Invalid, "needs an ID and a name")
	apps[3].Description = "new"
	changed, _ = put()
	for i := range apps {
		if changed[i] != (i == 3) {
			t.Errorf("put %s again: changed %v", apps[i].ID, changed[i])
		}
	}

	ns := make([]store.NewDeployment, n)
	for i := range ns {
		ns[i] = store.NewDeployment{Deployment: e.deployment(numbered("d", i), apps[i], deploy.OnCommit)}
	}
	ns[60].Deployment.ID = ns[59].Deployment.ID
	created, errs := e.store.CreateDeployments(ctx, ns)
	for i := range ns {
		switch i {
		case 7:
			wantKind(t, errs[i], deploy.NotFound, "no application "+apps[i].ID)
		case 59: // the other application is first in the locking order
			wantKind(t, errs[i], deploy.Exists, "d-059 exists already")
		default:
			if errs[i] != nil || created[i].ID != ns[i].Deployment.ID || created[i].Revision != 1 {
				t.Errorf("create %s: %+v, %v", ns[i].Deployment.ID, created[i], errs[i])
			}
		}
	}
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil || len(events) != n-2 {
		t.Errorf("%d events for %d deployments, %v", len(events), n-2, err)
	}
}
