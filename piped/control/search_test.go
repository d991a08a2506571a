package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// searched is the result of a search as text: the names in order, then the facets.
func searched(resp *controlv1.SearchApplicationsResponse) string {
	var names []string
	for _, a := range resp.Applications {
		names = append(names, a.Name)
	}
	out := strings.Join(names, " ")
	for _, f := range resp.Facets {
		out += "; " + f.Name
		for _, v := range f.Values {
			out += fmt.Sprintf(" %s=%d", v.Value, v.Count)
		}
	}
	return out
}

// shop is an agent with four applications: web failed, api waits to be planned, job is
// disabled, db was never deployed.
func shop(t *testing.T, options ...controltest.Option) (*controltest.Agent, controlv1.ControlServiceClient) {
	agent := controltest.Start(t, t.TempDir(), options...)
	web := agent.Application("web", map[string]string{"team": "shop", "env": "prod"})
	api := agent.Application("api", map[string]string{"team": "shop"})
	agent.Application("job", map[string]string{"team": "money"})
	agent.Application("db", nil)
	agent.Deployment("d1", web, "")
	agent.Move("d1", deploy.Failure, "no image")
	agent.Deployment("d2", api, "")
	agent.Tick(time.Second)
	if err := agent.Store.SetDisabled(t.Context(), "app-job", true); err != nil {
		t.Fatal(err)
	}
	return agent, controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
}

func TestSearchApplications(t *testing.T) {
	agent, client := shop(t)
	filter := func(facet string, values ...string) []*controlv1.FacetFilter {
		return []*controlv1.FacetFilter{{Facet: facet, Values: values}}
	}
	for name, c := range map[string]struct {
		req  *controlv1.SearchApplicationsRequest
		want string
	}{
		"all by name":                 {&controlv1.SearchApplicationsRequest{}, "api db job web"},
		"every word":                  {&controlv1.SearchApplicationsRequest{Text: " Team:Shop  PROD "}, "web"},
		"a word of the path":          {&controlv1.SearchApplicationsRequest{Text: "apps/job/app"}, "job"},
		"a word of the description":   {&controlv1.SearchApplicationsRequest{Text: "application db"}, "db"},
		"of the provider":             {&controlv1.SearchApplicationsRequest{Text: "dev"}, "api db job web"},
		"of the reason":               {&controlv1.SearchApplicationsRequest{Text: "no image"}, "web"},
		"of the last commit":          {&controlv1.SearchApplicationsRequest{Text: "0123456789ab"}, "api web"},
		"no word across two parts":    {&controlv1.SearchApplicationsRequest{Text: "webapps"}, ""},
		"the worst first":             {&controlv1.SearchApplicationsRequest{Order: controlv1.ApplicationOrder_APPLICATION_ORDER_STATE}, "web api db job"},
		"the last deployed first":     {&controlv1.SearchApplicationsRequest{Order: controlv1.ApplicationOrder_APPLICATION_ORDER_LAST_DEPLOYED}, "api web db job"},
		"the last changed first":      {&controlv1.SearchApplicationsRequest{Order: controlv1.ApplicationOrder_APPLICATION_ORDER_UPDATED, Limit: 1}, "job"},
		"a facet's own filter counts": {&controlv1.SearchApplicationsRequest{Filters: filter("label:team", "money"), Facets: []string{"label:team", "enabled"}}, "job; label:team shop=2 =1 money=1; enabled false=1"},
		"without a label":             {&controlv1.SearchApplicationsRequest{Filters: filter("label:team", "")}, "db"},
		"one of several values":       {&controlv1.SearchApplicationsRequest{Filters: filter("state", "FAILED", "DEPLOYING")}, "api web"},
		"two facets": {&controlv1.SearchApplicationsRequest{Filters: append(filter("enabled", "true"), filter("label:team", "shop")...), Facets: []string{"enabled", "label:team"}},
			"api web; enabled true=2; label:team shop=2 =1"},
		"states":             {&controlv1.SearchApplicationsRequest{Text: "team:", Facets: []string{"state", "deployment", "health", "sync", "kind", "provider", "repository", "label"}}, "api job web; state DEPLOYING=1 FAILED=1 SYNCED=1; deployment FAILED=1; health UNKNOWN=3; sync SYNCED=3; kind KUBERNETES=3; provider dev=3; repository apps=3; label team=3 env=1"},
		"a value of nothing": {&controlv1.SearchApplicationsRequest{Filters: filter("provider", "prod"), Facets: []string{"provider"}}, "; provider dev=4 prod=0"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := client.SearchApplications(as(t, agent.ReadOnly), c.req)
			if err != nil {
				t.Fatal(err)
			}
			if got := searched(resp); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if c.req.Limit == 0 && int(resp.Total) != len(resp.Applications) {
				t.Errorf("total %d of %d", resp.Total, len(resp.Applications))
			}
		})
	}
}

func TestSearchRejects(t *testing.T) {
	agent, client := shop(t)
	page, err := client.SearchApplications(as(t, agent.ReadOnly), &controlv1.SearchApplicationsRequest{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for want, req := range map[string]*controlv1.SearchApplicationsRequest{
		`there is no facet "color"`:     {Facets: []string{"color"}},
		`there is no facet "label:"`:    {Facets: []string{"label:"}},
		`there is no facet ""`:          {Filters: []*controlv1.FacetFilter{{}}},
		`has the facet "kind" twice`:    {Filters: []*controlv1.FacetFilter{{Facet: "kind"}, {Facet: "kind"}}},
		"the cursor is not one of":      {Cursor: "%"},
		"a search with this order":      {Cursor: page.Cursor, Order: controlv1.ApplicationOrder_APPLICATION_ORDER_STATE},
		"one of the defined enum":       {Order: 99},
		"at most 1000 bytes":            {Text: strings.Repeat("x", 1001)},
		"greater than or equal to 0":    {Limit: -1},
		"between 0 and 32 items":        {Facets: make([]string, 33)},
		"no more than 1000 items":       {Filters: []*controlv1.FacetFilter{{Facet: "kind", Values: make([]string, 1001)}}},
		"Filters: value must contain b": {Filters: make([]*controlv1.FacetFilter, 0, 33)[:33:33]},
	} {
		for i := range req.Filters {
			if req.Filters[i] == nil {
				req.Filters[i] = &controlv1.FacetFilter{Facet: fmt.Sprint(i)}
			}
		}
		_, err := client.SearchApplications(as(t, agent.ReadOnly), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSearchNamesTheChain: a deployment that its chain requested is by the chain, not by a user
// with the chain's ID as name.
func TestSearchNamesTheChain(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	web := agent.Application("web", nil)
	if _, err := agent.Store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: "d1", ApplicationID: web.ID, ApplicationName: web.Name, Git: web.Git, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnChain, Commander: "0123456789abcdef", Commit: deploy.Commit{Author: "Ada"}},
	}}); err != nil {
		t.Fatal(err)
	}
	resp, err := client.SearchApplications(as(t, agent.ReadOnly), &controlv1.SearchApplicationsRequest{})
	if err != nil || len(resp.Applications) != 1 {
		t.Fatal(resp, err)
	}
	if got := resp.Applications[0].LastDeployment.GetBy(); got != "deployment chain 01234567" {
		t.Errorf("the last deployment is by %q", got)
	}
}

// TestSearchPagesAreStable: pages contain each application once, also if others come and go
// between them.
func TestSearchPagesAreStable(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for i := range 10 {
		agent.Application(fmt.Sprintf("web-%d", i), nil)
	}
	for _, order := range []controlv1.ApplicationOrder{controlv1.ApplicationOrder_APPLICATION_ORDER_NAME, controlv1.ApplicationOrder_APPLICATION_ORDER_STATE} {
		req := &controlv1.SearchApplicationsRequest{Text: "web-", Limit: 3, Order: order}
		var got []string
		for n := 0; n == 0 || req.Cursor != ""; n++ {
			resp, err := client.SearchApplications(as(t, agent.ReadOnly), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range resp.Applications {
				got = append(got, strings.TrimPrefix(a.Name, "web-"))
			}
			req.Cursor = resp.Cursor
			first := fmt.Sprint("web-", "-", order, n) // sorted before all others
			agent.Application(first, nil)
			if err := agent.Store.DeleteApplication(t.Context(), "app-"+first); n%2 == 0 && err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(got, ""); !strings.HasSuffix(got, "0123456789") {
			t.Errorf("%s: pages with %s", order, got)
		}
	}
}

// TestSearchSeesCommittedChanges: a search sees each change of which the commit has returned.
func TestSearchSeesCommittedChanges(t *testing.T) {
	agent, client := shop(t)
	ctx := as(t, agent.ReadOnly)
	expect := func(text, want string) {
		t.Helper()
		resp, err := client.SearchApplications(ctx, &controlv1.SearchApplicationsRequest{Text: text, Facets: []string{"state"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := searched(resp); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	expect("apps/new/", "; state")
	app := agent.Application("new", nil)
	expect("apps/new/", "new; state SYNCED=1")
	agent.Deployment("d9", app, "")
	expect("apps/new/", "new; state DEPLOYING=1")
	agent.Move("d9", deploy.Success, "")
	expect("apps/new/", "new; state SYNCED=1")
	degraded := deploy.Event{Key: "e", Type: deploy.EventDegraded, ApplicationID: app.ID, At: controltest.Epoch}
	if _, err := agent.Store.SetDegraded(t.Context(), app.ID, true, "its pods crash", degraded); err != nil {
		t.Fatal(err)
	}
	expect("apps/new/", "new; state DEGRADED=1")
	app.Name, app.Git.Dir, app.Description = "newer", "elsewhere", ""
	if _, err := agent.Store.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	expect("newer", "newer; state DEGRADED=1")
	expect("elsewhere/app.pipecd.yaml", "newer; state DEGRADED=1")
	if err := agent.Store.DeleteApplication(t.Context(), app.ID); err != nil {
		t.Fatal(err)
	}
	expect("newer", "; state")
}

// TestSearchCountsOnlyVisibleApplications also covers pages: they are full. The same search of another
// caller has run before.
func TestSearchCountsOnlyVisibleApplications(t *testing.T) {
	agent, client := shop(t)
	key := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "shop"}})
	req := &controlv1.SearchApplicationsRequest{Limit: 1, Facets: []string{"label:team", "enabled"}, Order: controlv1.ApplicationOrder_APPLICATION_ORDER_STATE}
	if resp, err := client.SearchApplications(as(t, agent.ReadOnly), req); err != nil || resp.Total != 4 {
		t.Fatalf("the same search of a caller who may view all: %v, %v", resp, err)
	}
	resp, err := client.SearchApplications(as(t, key), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := searched(resp); got != "web; label:team shop=2; enabled true=2" || resp.Total != 2 || resp.Cursor == "" {
		t.Errorf("got %s, total %d, cursor %q", got, resp.Total, resp.Cursor)
	}
}

// crashing is a cluster in which the pods of each application crash.
type crashing struct{}

func (crashing) LiveState(_ context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	pod := deploy.LiveObject{Object: deploy.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "web-1"}, Health: deploy.HealthDegraded, Reason: "the container web crashes"}
	return deploy.LiveState{ApplicationID: app.ID, Health: deploy.HealthDegraded, Objects: []deploy.LiveObject{
		{Object: deploy.ObjectRef{Kind: "Service", Name: "web"}, Health: deploy.Healthy},
		{Object: deploy.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "web"}, Health: deploy.HealthDegraded, Reason: "0 of 1 pods is available", Children: []deploy.LiveObject{pod}},
	}}, nil
}

// TestGetApplicationSummary: the reason known of a pod is in the summary of its application.
func TestGetApplicationSummary(t *testing.T) {
	agent, client := shop(t, func(c *control.Config) { c.Live = crashing{} })
	for i := range 7 {
		id := fmt.Sprint("s", i)
		app, err := agent.Store.Application(t.Context(), "app-web")
		if err != nil {
			t.Fatal(err)
		}
		agent.Deployment(id, app, "")
		agent.Move(id, deploy.Success, "done")
	}
	resp, err := client.GetApplicationSummary(as(t, agent.ReadOnly), &controlv1.GetApplicationSummaryRequest{ApplicationId: "app-web"})
	if err != nil {
		t.Fatal(err)
	}
	s := resp.Summary
	var last []string
	for _, d := range s.Deployments {
		last = append(last, d.DeploymentId)
	}
	for what, c := range map[string][2]string{
		"headline":         {s.Headline, "web is not live: Deployment shop/web: the container web crashes; 0123456 was deployed last."},
		"word":             {s.Status.Word, "Degraded"},
		"health":           {s.Health.String() + " " + s.HealthReason, "HEALTH_DEGRADED Deployment shop/web: the container web crashes"},
		"last deployments": {strings.Join(last, " "), "s6 s5 s4 s3 s2"},
		"by, duration":     {fmt.Sprint(s.Deployments[0].By, " ", s.Deployments[0].DurationMs), "Ada 3000"},
		"last failure":     {s.LastFailure.GetDeploymentId() + " " + s.LastFailure.GetStatusReason(), "d1 no image"},
		"images":           {s.RunningVersions[0].Url, "example.com/web:v2"},
		"application":      {s.Application.Id + " " + s.Application.SyncState.Status.String(), "app-web SYNCED"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: got %q, want %q", what, c[0], c[1])
		}
	}
	_, err = client.GetApplicationSummary(as(t, agent.ReadOnly), &controlv1.GetApplicationSummaryRequest{ApplicationId: "none"})
	if status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// TestSummaryWithoutCluster: a cluster that does not answer leaves the rest of the summary.
func TestSummaryWithoutCluster(t *testing.T) {
	agent, client := shop(t, func(c *control.Config) { c.Live = nowhere{} })
	resp, err := client.GetApplicationSummary(as(t, agent.ReadOnly), &controlv1.GetApplicationSummaryRequest{ApplicationId: "app-web"})
	if err != nil {
		t.Fatal(err)
	}
	s := resp.Summary
	if want := "web is not live at 0123456: no image; no earlier version is live."; s.Headline != want {
		t.Errorf("got %s, want %s", s.Headline, want)
	}
	if s.Health != modelv1.Health_HEALTH_UNSPECIFIED || !strings.Contains(s.HealthReason, "no cluster in this test") {
		t.Errorf("health %s: %s", s.Health, s.HealthReason)
	}
}

// TestSummaryOfAnApproval names what the application waits for.
func TestSummaryOfAnApproval(t *testing.T) {
	agent, client := shop(t, func(c *control.Config) { c.Live = nowhere{} })
	_, err := agent.Store.UpdateDeployment(t.Context(), "d2", func(d *deploy.Deployment) error {
		at := controltest.Epoch.Add(time.Hour)
		plan := deploy.Plan{Strategy: deploy.StrategyPipeline, Stages: []deploy.Stage{{ID: "a", Name: deploy.StageWaitApproval, Visible: true, Options: []byte(`{"approvers":["jane"]}`)}}}
		if err := d.Plan(plan, at); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.Store.UpdateDeployment(t.Context(), "d2", func(d *deploy.Deployment) error {
		if err := d.Start(controltest.Epoch.Add(time.Hour)); err != nil {
			return err
		}
		return d.StartStage("a", controltest.Epoch.Add(time.Hour))
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.GetApplicationSummary(as(t, agent.ReadOnly), &controlv1.GetApplicationSummaryRequest{ApplicationId: "app-api"})
	if err != nil {
		t.Fatal(err)
	}
	s := resp.Summary
	if len(s.Approvals) != 1 || s.Approvals[0].DeploymentId != "d2" || s.Wait.GetWaitsFor() != "1 approval of jane" || s.Status.Word != "Waiting for approval" {
		t.Errorf("got %v", s)
	}
	found, err := client.SearchApplications(as(t, agent.ReadOnly), &controlv1.SearchApplicationsRequest{
		Filters: []*controlv1.FacetFilter{{Facet: "deployment", Values: []string{"WAITING_FOR_APPROVAL"}}},
	})
	if err != nil || searched(found) != "api" {
		t.Errorf("%v, %v", found, err)
	}
}

// nextApplication describes the next message of a watch.
func nextApplication(t *testing.T, stream grpc.ServerStreamingClient[controlv1.WatchApplicationsResponse]) string {
	t.Helper()
	resp, err := stream.Recv()
	switch {
	case err != nil:
		t.Fatal(err)
	case resp.CaughtUp:
		return "caught up"
	case resp.RemovedId != "":
		return "removed " + resp.RemovedId
	}
	return resp.Application.Name + " " + resp.Application.Status.Word
}

func TestWatchApplications(t *testing.T) {
	agent, client := shop(t)
	watch := func(key string, req *controlv1.WatchApplicationsRequest) grpc.ServerStreamingClient[controlv1.WatchApplicationsResponse] {
		ctx, end := context.WithTimeout(as(t, key), 2*time.Minute)
		t.Cleanup(end)
		stream, err := client.WatchApplications(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	expect := func(stream grpc.ServerStreamingClient[controlv1.WatchApplicationsResponse], want ...string) {
		t.Helper()
		for _, w := range want {
			if got := nextApplication(t, stream); got != w {
				t.Errorf("got %q, want %q", got, w)
			}
		}
	}
	limited := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "shop"}})
	byLabel := watch(agent.ReadOnly, &controlv1.WatchApplicationsRequest{Labels: map[string]string{"team": "money"}})
	byID := watch(agent.ReadOnly, &controlv1.WatchApplicationsRequest{ApplicationIds: []string{"app-db", "none"}})
	visible := watch(limited, &controlv1.WatchApplicationsRequest{})
	changes := watch(limited, &controlv1.WatchApplicationsRequest{ChangesOnly: true})
	every := watch(agent.ReadOnly, &controlv1.WatchApplicationsRequest{ChangesOnly: true})
	expect(byLabel, "job Synced", "caught up")
	expect(byID, "db Synced", "caught up")
	expect(visible, "api Deploying", "web Failed", "caught up")
	expect(changes, "caught up")
	expect(every, "caught up")

	// An application gets another label: it leaves one watch and is new in two.
	db, err := agent.Store.Application(t.Context(), "app-db")
	if err != nil {
		t.Fatal(err)
	}
	for _, team := range []string{"money", "shop"} {
		db.Labels = map[string]string{"team": team}
		if _, err := agent.Store.PutApplication(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if team == "money" {
			expect(byLabel, "db Synced")
		}
		expect(byID, "db Synced")
		expect(every, "db Synced") // before the next change, which would take its place
	}
	expect(byLabel, "removed app-db")
	expect(visible, "db Synced")
	expect(changes, "db Synced")

	// The change of a hidden application is not sent, a deletion is sent as removed.
	if err := agent.Store.SetDisabled(t.Context(), "app-job", false); err != nil {
		t.Fatal(err)
	}
	expect(byLabel, "job Synced")
	expect(every, "job Synced")
	if err := agent.Store.DeleteApplication(t.Context(), "app-db"); err != nil {
		t.Fatal(err)
	}
	expect(byID, "removed app-db")
	expect(visible, "removed app-db")
	expect(changes, "removed app-db")
	expect(every, "removed app-db")

	// One that matched at the start is removed, too.
	if err := agent.Store.DeleteApplication(t.Context(), "app-web"); err != nil {
		t.Fatal(err)
	}
	expect(visible, "removed app-web")
	expect(changes, "removed app-web")
	expect(every, "removed app-web")
}
