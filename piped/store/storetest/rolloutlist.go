package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testListRollouts: rollouts of deployments and external ones are listed together, by start
// time.
func testListRollouts(t *testing.T, e *env) {
	ctx := t.Context()
	web, api := e.putApp(t, "web"), e.putApp(t, "api")
	e.create(t, "d1", web)
	e.create(t, "d2", api)
	ref := func(name string) deploy.ObjectRef {
		return deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}
	}
	inOps := func(r deploy.ObjectRef) deploy.ObjectRef {
		r.Namespace = "ops"
		return r
	}
	save := func(r deploy.Rollout) deploy.Rollout {
		t.Helper()
		r.Cluster = "c"
		saved, err := e.store.SaveRollout(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	first := save(deploy.Rollout{ID: "1", ApplicationID: web.ID, DeploymentID: "d1", StageID: "s", Workload: ref("web"), Phase: deploy.RolloutIntent})
	applied, between := e.clock.now(), e.clock.now()
	second := save(deploy.Rollout{ID: "2", ApplicationID: api.ID, DeploymentID: "d2", StageID: "s", Workload: ref("api"), Phase: deploy.RolloutComplete})
	// Recorded last: one that started before the second, and one that started with it.
	save(deploy.Rollout{ID: "x", ApplicationID: web.ID, Workload: ref("web"), Phase: deploy.RolloutProgressing, AppliedAt: between})
	save(deploy.Rollout{ID: "y", ApplicationID: "gone", Workload: ref("old"), Phase: deploy.RolloutSuperseded, AppliedAt: second.StartedAt})

	whole := save(deploy.Rollout{ID: "z", ApplicationID: "gone", Workload: inOps(ref("z")), Phase: deploy.RolloutSuperseded, AppliedAt: epoch.Truncate(time.Second).Add(-time.Hour)})
	if want := epoch.Truncate(time.Second).Add(time.Second - time.Millisecond - time.Hour); !whole.StartedAt.Equal(want) {
		t.Errorf("what the cluster says began in a second began at %s, want its end, %s", whole.StartedAt, want)
	}

	first.Phase, first.AppliedAt = deploy.RolloutApplied, applied
	if first = save(first); !first.StartedAt.Equal(applied.Truncate(time.Millisecond)) {
		t.Errorf("what was applied at %s began at %s", applied, first.StartedAt)
	}
	first.AppliedAt = e.clock.now()
	if again := save(first); !again.StartedAt.Equal(first.StartedAt) {
		t.Errorf("what began at %s began at %s when it was applied again", first.StartedAt, again.StartedAt)
	}

	list := func(q store.RolloutList) (ids, cursor string) {
		t.Helper()
		found, cursor, err := e.store.ListRollouts(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range found {
			all = append(all, r.ID)
		}
		return strings.Join(all, " "), cursor
	}
	for name, c := range map[string]struct {
		q    store.RolloutList
		want string
	}{
		"all":                      {store.RolloutList{}, "2 y x 1 z"},
		"of an application":        {store.RolloutList{ApplicationIDs: []string{web.ID}}, "x 1"},
		"of several":               {store.RolloutList{ApplicationIDs: []string{web.ID, "gone"}}, "y x 1 z"},
		"of an unknown one":        {store.RolloutList{ApplicationIDs: []string{"unknown"}}, ""},
		"by labels":                {store.RolloutList{Labels: map[string]string{"team": "core", "name": "api"}}, "2"},
		"of a deployment":          {store.RolloutList{DeploymentIDs: []string{"d1"}}, "1"},
		"in a namespace":           {store.RolloutList{Namespaces: []string{"shop"}}, "2 y x 1"},
		"in one of several":        {store.RolloutList{Namespaces: []string{"web", "Deployment", "ops"}}, "z"},
		"in a part of a name":      {store.RolloutList{Namespaces: []string{"sho"}}, ""},
		"in the name of an object": {store.RolloutList{Namespaces: []string{"web"}}, ""},
		"of a workload":            {store.RolloutList{Workloads: []string{"web", "z"}}, "x 1 z"},
		"of a part of its name":    {store.RolloutList{Workloads: []string{"we", "eb", "shop", "Deployment"}}, ""},
		"in one, of an app":        {store.RolloutList{Namespaces: []string{"shop"}, ApplicationIDs: []string{"gone"}}, "y"},
		"by phase":                 {store.RolloutList{Phases: []deploy.RolloutPhase{deploy.RolloutApplied, deploy.RolloutProgressing}}, "x 1"},
		"from, that moment too":    {store.RolloutList{From: second.StartedAt}, "2 y"},
		"to, without that moment":  {store.RolloutList{To: second.StartedAt}, "x 1 z"},
		"between":                  {store.RolloutList{From: between, To: between.Add(time.Millisecond)}, "x"},
	} {
		if got, cursor := list(c.q); got != c.want || cursor != "" {
			t.Errorf("%s: %q, cursor %q; want %q and no cursor", name, got, cursor, c.want)
		}
	}

	found, _, err := e.store.ListRollouts(ctx, store.RolloutList{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]string{{"api", "c0ffee0123-d2"}, {"", ""}, {"web", ""}, {"web", "c0ffee0123-d1"}, {"", ""}} {
		if r := found[i]; r.ApplicationName != want[0] || r.Commit != want[1] {
			t.Errorf("rollout %s: application %q, commit %q; want %q", r.ID, r.ApplicationName, r.Commit, want)
		}
	}
	rolloutPages(t, list)
	_, _, err = e.store.ListRollouts(ctx, store.RolloutList{Cursor: "nonsense"})
	wantKind(t, err, deploy.Invalid, "cursor")
}

// rolloutPages reads page by page; a page may end between two rollouts with the same start.
func rolloutPages(t *testing.T, list func(store.RolloutList) (string, string)) {
	t.Helper()
	for limit, want := range map[int][]string{1: {"2", "y", "x", "1", "z"}, 2: {"2 y", "x 1", "z"}, 4: {"2 y x 1", "z"}, 5: {"2 y x 1 z"}, 9: {"2 y x 1 z"}} {
		var got []string
		for cursor, more := "", true; more; more = cursor != "" {
			var page string
			page, cursor = list(store.RolloutList{Limit: limit, Cursor: cursor})
			got = append(got, page)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
}
