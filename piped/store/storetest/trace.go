package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// deployCommit stores a deployment of a commit with a subject.
func (e *env) deployCommit(t *testing.T, id string, a deploy.Application, hash, subject string) {
	t.Helper()
	d := e.deployment(id, a, deploy.OnCommit)
	d.Trigger.Commit.Hash, d.Trigger.Commit.Message = hash, subject
	_, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d})
	must(t, err)
}

// appOf stores an application of another repository.
func (e *env) appOf(t *testing.T, name, repoID string) deploy.Application {
	t.Helper()
	a := app(name)
	a.Git.RepoID = repoID
	_, err := e.store.PutApplication(t.Context(), a)
	must(t, err)
	return a
}

func testTracedCommits(t *testing.T, e *env) {
	web, lib := e.putApp(t, "web"), e.appOf(t, "lib", "libs")
	e.deployCommit(t, "d1", web, "abcdef1000", "one")
	e.deployCommit(t, "d2", web, "abcdef1000", "one, again")
	e.deployCommit(t, "d3", lib, "abcdef1999", "two")
	e.deployCommit(t, "d4", lib, "abcdef2", "three")
	e.register(t, "e1", "image", nil)
	must(t, e.store.SaveEventHandling(t.Context(), "e1", deploy.EventHandling{RepoID: "repo", Status: deploy.EventHandled, Commit: "abcdef1e"}))
	must(t, e.store.SavePullRequestCommit(t.Context(), deploy.PullRequestCommit{CommitRef: deploy.CommitRef{RepoID: "libs", Hash: "abcdef1f"}, Number: 7, Link: deploy.LinkHead}))
	repo := web.Git.RepoID
	one, two := deploy.CommitRef{RepoID: repo, Hash: "abcdef1000"}, deploy.CommitRef{RepoID: "libs", Hash: "abcdef1999"}
	of := func(name string) *deploy.Scope {
		return &deploy.Scope{Alternatives: [][]deploy.Selector{{{Names: []string{name}}}}}
	}
	for name, c := range map[string]struct {
		q    store.CommitQuery
		want []deploy.CommitRef
	}{
		"a prefix":                {store.CommitQuery{Prefix: "abcdef1"}, []deploy.CommitRef{one, two, {RepoID: "repo", Hash: "abcdef1e"}, {RepoID: "libs", Hash: "abcdef1f"}}},
		"a hash":                  {store.CommitQuery{Prefix: "abcdef1000"}, []deploy.CommitRef{one}},
		"of a repository":         {store.CommitQuery{Prefix: "abcdef1", RepoID: "libs"}, []deploy.CommitRef{two, {RepoID: "libs", Hash: "abcdef1f"}}},
		"a limit":                 {store.CommitQuery{Prefix: "abcdef", RepoID: "libs", Scope: of("lib"), Limit: 1}, []deploy.CommitRef{two}},
		"of visible applications": {store.CommitQuery{Prefix: "abcdef1", Scope: of("lib")}, []deploy.CommitRef{two}},
		"of none":                 {store.CommitQuery{Prefix: "abcdef1", Scope: &deploy.Scope{}}, nil},
		"an unknown one":          {store.CommitQuery{Prefix: "abcdef3"}, nil},
	} {
		got, err := e.store.Commits(t.Context(), c.q)
		must(t, err)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func testTracedEvents(t *testing.T, e *env) {
	ctx := t.Context()
	for _, id := range []string{"e1", "e2", "e3"} {
		e.register(t, id, "image", nil)
	}
	for id, h := range map[string]deploy.EventHandling{
		"e1": {RepoID: "a", Status: deploy.EventHandled, Commit: "c1"},
		"e2": {RepoID: "a", Status: deploy.EventHandled, Commit: "c1"},
		"e3": {RepoID: "b", PullRequest: true, Status: deploy.EventHandled, Commit: "c1", PullRequestURL: "https://github.com/shop/b/pull/12"},
	} {
		must(t, e.store.SaveEventHandling(ctx, id, h))
	}
	must(t, e.store.SaveEventHandling(ctx, "e1", deploy.EventHandling{RepoID: "b", Status: deploy.EventHandled})) // nothing to commit
	a, b := deploy.CommitRef{RepoID: "a", Hash: "c1"}, deploy.CommitRef{RepoID: "b", Hash: "c1"}
	for _, c := range []struct {
		commits []deploy.CommitRef
		want    []store.EventCommit
	}{
		{nil, nil},
		{[]deploy.CommitRef{a}, []store.EventCommit{{CommitRef: a, EventID: "e1"}, {CommitRef: a, EventID: "e2"}}},
		{[]deploy.CommitRef{{RepoID: "a", Hash: "c2"}, b}, []store.EventCommit{{CommitRef: b, EventID: "e3"}}},
	} {
		got, err := e.store.EventCommits(ctx, c.commits)
		must(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("events of %v (-want +got):\n%s", c.commits, diff)
		}
	}
	prs, err := e.store.PullRequestsOf(ctx, []deploy.CommitRef{a, b})
	must(t, err)
	want := []deploy.PullRequestCommit{{CommitRef: b, Number: 12, Link: deploy.LinkHead}}
	if diff := cmp.Diff(want, prs, cmpopts.IgnoreFields(deploy.PullRequestCommit{}, "At")); diff != "" {
		t.Errorf("pull requests (-want +got):\n%s", diff)
	}
	ids := func(events []deploy.RegisteredEvent, err error) (ids []string) {
		must(t, err)
		for _, r := range events {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if diff := cmp.Diff([]string{"e1", "e3"}, ids(e.store.RegisteredEventsByID(ctx, []string{"e3", "nobody", "e1"}))); diff != "" {
		t.Errorf("by ID (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"e1", "e2"}, ids(e.store.RegisteredEventsBySource(ctx, "c0ff", 2))); diff != "" {
		t.Errorf("by source commit (-want +got):\n%s", diff)
	}
	if got := ids(e.store.RegisteredEventsBySource(ctx, "c0ffef", 2)); got != nil {
		t.Errorf("by another source commit: %q", got)
	}
}

// testTracedPullRequests: previews know the head, subjects and the Git host what was merged. A
// link is replaced by one that says more.
func testTracedPullRequests(t *testing.T, e *env) {
	ctx, web := t.Context(), e.putApp(t, "web")
	repo := web.Git.RepoID
	preview := func(id string, number int, head string) {
		_, err := e.store.CreateCommand(ctx, deploy.Command{ID: id, Type: deploy.CommandBuildPlanPreview,
			PlanPreview: &deploy.PlanPreviewRequest{RepoID: repo, HeadCommit: head, PullRequest: number}})
		must(t, err)
	}
	merged := func(number int, hash string) {
		must(t, e.store.SavePullRequestCommit(ctx, deploy.PullRequestCommit{CommitRef: deploy.CommitRef{RepoID: repo, Hash: hash}, Number: number, Link: deploy.LinkMerged}))
	}
	preview("p1", 7, "head")
	preview("p2", 0, "nothing") // of no pull request
	e.deployCommit(t, "d1", web, "squashed", "Bump web (#7)")
	e.deployCommit(t, "d2", web, "plain", "Bump web")
	merged(7, "squashed")
	merged(8, "head") // fast-forward of another pull request
	preview("p3", 8, "head")
	links := func(list []deploy.PullRequestCommit, err error) map[string]deploy.PullRequestLink {
		must(t, err)
		out := map[string]deploy.PullRequestLink{}
		for _, c := range list {
			if c.RepoID != repo || c.At.IsZero() {
				t.Errorf("record %+v", c)
			}
			out[numbered(c.Hash+" ", c.Number)] = c.Link
		}
		return out
	}
	for name, c := range map[string]struct {
		got, want map[string]deploy.PullRequestLink
	}{
		"of 7":                  {links(e.store.CommitsOfPullRequest(ctx, repo, 7, 10)), map[string]deploy.PullRequestLink{numbered("head ", 7): deploy.LinkHead, numbered("squashed ", 7): deploy.LinkMerged}},
		"of 8":                  {links(e.store.CommitsOfPullRequest(ctx, repo, 8, 10)), map[string]deploy.PullRequestLink{numbered("head ", 8): deploy.LinkMerged}},
		"of another repository": {links(e.store.CommitsOfPullRequest(ctx, "other", 7, 10)), map[string]deploy.PullRequestLink{}},
		"of commits": {links(e.store.PullRequestsOf(ctx, []deploy.CommitRef{{RepoID: repo, Hash: "head"}, {RepoID: repo, Hash: "plain"}, {RepoID: "other", Hash: "squashed"}})),
			map[string]deploy.PullRequestLink{numbered("head ", 7): deploy.LinkHead, numbered("head ", 8): deploy.LinkMerged}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got, err := e.store.CommitsOfPullRequest(ctx, repo, 7, 1); err != nil || len(got) != 1 || got[0].Hash != "squashed" {
		t.Errorf("the last recorded: %+v, %v", got, err)
	}
}

// testOldPullRequests: a record is retained as long as its commit has a deployment.
func testOldPullRequests(t *testing.T, e *env) {
	ctx, web := t.Context(), e.putApp(t, "web")
	repo := web.Git.RepoID
	save := func(hash string) {
		must(t, e.store.SavePullRequestCommit(ctx, deploy.PullRequestCommit{CommitRef: deploy.CommitRef{RepoID: repo, Hash: hash}, Number: 7, Link: deploy.LinkHead}))
	}
	e.deployCommit(t, "d1", web, "deployed", "Bump web (#7)")
	for _, hash := range []string{"a", "b", "c"} {
		save(hash)
	}
	e.pass(time.Hour)
	before := e.clock.now()
	e.pass(time.Hour)
	save("new")
	for _, want := range []int{2, 1, 0} {
		removed, err := e.store.RemovePullRequestCommits(ctx, before, 2)
		if err != nil || removed != want {
			t.Errorf("removed %d, %v; want %d", removed, err, want)
		}
	}
	left, err := e.store.CommitsOfPullRequest(ctx, repo, 7, 10)
	if err != nil || len(left) != 2 || left[0].Hash != "new" || left[1].Hash != "deployed" {
		t.Errorf("left: %+v, %v", left, err)
	}
}

func testStatusChanges(t *testing.T, e *env) {
	a := e.putApp(t, "web")
	e.create(t, "d1", a)
	e.run(t, "d1")
	e.succeed(t, "d1")
	e.create(t, "d2", a)
	changes, err := e.store.StatusChanges(t.Context(), []string{"d2", "d1", "nobody"})
	must(t, err)
	got := map[string]string{}
	for id, list := range changes {
		for _, c := range list {
			got[id] += c.To + " "
			if c.At.IsZero() || c.StageID != "" {
				t.Errorf("%+v", c)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"d1": "PENDING PLANNED RUNNING SUCCESS ", "d2": "PENDING "}, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if none, err := e.store.StatusChanges(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("of none: %v, %v", none, err)
	}
}

// testDeploymentsOfARange lists deployments by their end, alone and with a condition that
// decides the query plan.
func testDeploymentsOfARange(t *testing.T, e *env) {
	a := e.putApp(t, "web")
	var ends []time.Time
	for _, id := range []string{"d1", "d2", "d3"} {
		e.create(t, id, a)
		e.run(t, id)
		ends = append(ends, e.succeed(t, id).CompletedAt)
	}
	e.create(t, "d4", a)
	for name, c := range map[string]struct {
		from, to time.Time
		want     []string
	}{
		"no range":         {want: []string{"d4", "d3", "d2", "d1"}},
		"the end excluded": {ends[0], ends[2], []string{"d2", "d1"}},
		"without an end":   {from: ends[1], want: []string{"d3", "d2"}},
		"without a begin":  {to: ends[1], want: []string{"d1"}},
		"after all":        {from: ends[2].Add(time.Millisecond)},
	} {
		for more, q := range map[string]store.DeploymentQuery{
			"": {}, ", in pages": {Limit: 1}, ", of an application": {ApplicationIDs: []string{a.ID}}, ", of a label": {Labels: map[string]string{"name": "web"}, Limit: 2},
		} {
			q.EndedFrom, q.EndedTo = c.from, c.to
			if diff := cmp.Diff(c.want, e.deploymentPages(t, q)); diff != "" {
				t.Errorf("%s%s (-want +got):\n%s", name, more, diff)
			}
		}
	}
}

func testDeploymentsOfChains(t *testing.T, e *env) {
	for _, d := range []struct{ id, chain string }{{"d1", "one"}, {"d2", "two"}, {"d3", ""}, {"d4", "one"}} {
		n := e.deployment(d.id, e.putApp(t, "app of "+d.id), deploy.OnChain)
		n.ChainID = d.chain
		_, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: n})
		must(t, err)
	}
	for want, chains := range map[string][]string{"d4 d1": {"one"}, "d4 d2 d1": {"two", "one"}, "": {"three"}} {
		if got := strings.Join(e.deploymentPages(t, store.DeploymentQuery{ChainIDs: chains, Limit: 2}), " "); got != want {
			t.Errorf("of the chains %q: %q, want %q", chains, got, want)
		}
	}
}
