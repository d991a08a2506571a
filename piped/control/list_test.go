package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// fleet stores the applications and deployments of the list tests.
func fleet(t *testing.T, agent *controltest.Agent) {
	t.Helper()
	ctx := t.Context()
	web := agent.Application("web", map[string]string{"env": "prod", "team": "a"})
	api := agent.Application("api", map[string]string{"env": "prod", "team": "b"})
	old := agent.Application("old", nil)
	gone := agent.Application("gone", nil)
	agent.Deployment("d1", web, "")
	agent.Move("d1", deploy.Success, "done")
	agent.Deployment("d2", api, "")
	agent.Move("d2", deploy.Failure, "web-1: ImagePullBackOff")
	agent.Deployment("d3", web, "")
	agent.Move("d3", deploy.Running, "")
	agent.Deployment("d4", old, "")
	for _, err := range []error{agent.Store.SetDisabled(ctx, old.ID, true), agent.Store.DeleteApplication(ctx, gone.ID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestListApplications(t *testing.T) {
	ctx, client, agent := api(t)
	fleet(t, agent)
	tests := map[string]struct {
		req  *apiservice.ListApplicationsRequest
		want string
	}{
		"enabled ones, last updated first":  {&apiservice.ListApplicationsRequest{}, "web api"},
		"disabled is strict":                {&apiservice.ListApplicationsRequest{Disabled: true}, "old"},
		"by name":                           {&apiservice.ListApplicationsRequest{Name: "api"}, "api"},
		"by kind":                           {&apiservice.ListApplicationsRequest{Kind: "KUBERNETES"}, "web api"},
		"by an unused kind":                 {&apiservice.ListApplicationsRequest{Kind: "ECS"}, ""},
		"by this agent":                     {&apiservice.ListApplicationsRequest{PipedId: controltest.PipedID}, "web api"},
		"by another agent":                  {&apiservice.ListApplicationsRequest{PipedId: "piped-2"}, ""},
		"by a label":                        {&apiservice.ListApplicationsRequest{Labels: map[string]string{"env": "prod"}}, "web api"},
		"labels hold together":              {&apiservice.ListApplicationsRequest{Labels: map[string]string{"env": "prod", "team": "b"}}, "api"},
		"an unused label":                   {&apiservice.ListApplicationsRequest{Labels: map[string]string{"env": "test"}}, ""},
		"limit":                             {&apiservice.ListApplicationsRequest{Limit: 1}, "web"},
		"conditions and limit are together": {&apiservice.ListApplicationsRequest{Limit: 1, Labels: map[string]string{"team": "b"}}, "api"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := client.ListApplications(ctx, tc.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range resp.Applications {
				got = append(got, a.Name)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if (resp.Cursor == "") != (len(got) == 0) {
				t.Errorf("cursor %q for %d applications: it must be empty for an empty page, and only then", resp.Cursor, len(got))
			}
		})
	}
}

func TestListDeployments(t *testing.T) {
	ctx, client, agent := api(t)
	fleet(t, agent)
	tests := map[string]struct {
		req  *apiservice.ListDeploymentsRequest
		want string
	}{
		"all, last updated first":      {&apiservice.ListDeploymentsRequest{}, "d4 d3 d2 d1"},
		"by status":                    {&apiservice.ListDeploymentsRequest{Statuses: []string{"DEPLOYMENT_FAILURE"}}, "d4 d2"},
		"every status counts":          {&apiservice.ListDeploymentsRequest{Statuses: []string{"DEPLOYMENT_FAILURE", "DEPLOYMENT_SUCCESS"}}, "d4 d2 d1"},
		"an empty status counts not":   {&apiservice.ListDeploymentsRequest{Statuses: []string{"", "DEPLOYMENT_RUNNING"}}, "d3"},
		"only an empty status":         {&apiservice.ListDeploymentsRequest{Statuses: []string{""}}, "d4 d3 d2 d1"},
		"by kind":                      {&apiservice.ListDeploymentsRequest{Kinds: []string{"TERRAFORM", "KUBERNETES"}}, "d4 d3 d2 d1"},
		"by an unused kind":            {&apiservice.ListDeploymentsRequest{Kinds: []string{"TERRAFORM"}}, ""},
		"only an empty kind":           {&apiservice.ListDeploymentsRequest{Kinds: []string{""}}, "d4 d3 d2 d1"},
		"by application":               {&apiservice.ListDeploymentsRequest{ApplicationIds: []string{"app-web"}}, "d3 d1"},
		"every application counts":     {&apiservice.ListDeploymentsRequest{ApplicationIds: []string{"app-api", "app-old"}}, "d4 d2"},
		"only an empty application":    {&apiservice.ListDeploymentsRequest{ApplicationIds: []string{""}}, "d4 d3 d2 d1"},
		"by an application's name":     {&apiservice.ListDeploymentsRequest{ApplicationName: "api"}, "d2"},
		"by label":                     {&apiservice.ListDeploymentsRequest{Labels: map[string]string{"team": "a"}}, "d3 d1"},
		"labels hold together":         {&apiservice.ListDeploymentsRequest{Labels: map[string]string{"team": "a", "env": "test"}}, ""},
		"conditions hold together":     {&apiservice.ListDeploymentsRequest{ApplicationName: "web", Statuses: []string{"DEPLOYMENT_RUNNING"}}, "d3"},
		"limit":                        {&apiservice.ListDeploymentsRequest{Limit: 2}, "d4 d3"},
		"an unknown application":       {&apiservice.ListDeploymentsRequest{ApplicationIds: []string{"app-none"}}, ""},
		"a limit beyond what is there": {&apiservice.ListDeploymentsRequest{Limit: 1 << 30}, "d4 d3 d2 d1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := client.ListDeployments(ctx, tc.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range resp.Deployments {
				got = append(got, d.Id)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if (resp.Cursor == "") != (len(got) == 0) {
				t.Errorf("cursor %q for %d deployments: it must be empty for an empty page, and only then", resp.Cursor, len(got))
			}
		})
	}
}

func TestCursorsLeadThroughEverythingOnce(t *testing.T) {
	ctx, client, agent := api(t)
	const count = 25
	for i := range count {
		app := agent.Application(fmt.Sprintf("a%02d", i), nil)
		agent.Deployment(fmt.Sprintf("d%02d", i), app, "")
	}
	for _, limit := range []int32{1, 7, count, 0} {
		var apps, deployments []string
		for cursor := ""; ; {
			resp, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			if cursor = resp.Cursor; cursor == "" {
				break
			}
			for _, a := range resp.Applications {
				apps = append(apps, a.Id)
			}
		}
		for cursor := ""; ; {
			resp, err := client.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			if cursor = resp.Cursor; cursor == "" {
				break
			}
			for _, d := range resp.Deployments {
				deployments = append(deployments, d.Id)
			}
		}
		var wantApps, wantDeployments []string
		for i := count - 1; i >= 0; i-- {
			wantApps = append(wantApps, fmt.Sprintf("app-a%02d", i))
			wantDeployments = append(wantDeployments, fmt.Sprintf("d%02d", i))
		}
		if diff := cmp.Diff(wantApps, apps); diff != "" {
			t.Errorf("limit %d: applications (-want +got):\n%s", limit, diff)
		}
		if diff := cmp.Diff(wantDeployments, deployments); diff != "" {
			t.Errorf("limit %d: deployments (-want +got):\n%s", limit, diff)
		}
	}
}

// TestLargeListsStayReadable: pages are truncated by size, and their cursors continue there.
func TestLargeListsStayReadable(t *testing.T) {
	ctx, client, agent := api(t)
	const count = 50
	reason := strings.Repeat("r", 200<<10)
	for i := range count {
		app := agent.Application(fmt.Sprintf("a%02d", i), nil)
		if _, err := agent.Store.SetSyncState(t.Context(), app.ID, deploy.SyncState{Status: deploy.OutOfSync, Reason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	pages := 0
	for cursor := ""; ; pages++ {
		resp, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		if cursor = resp.Cursor; cursor == "" {
			break
		}
		for _, a := range resp.Applications {
			seen[a.Id]++
		}
	}
	if len(seen) != count || pages < 3 {
		t.Errorf("%d applications in %d pages, want %d in at least 3", len(seen), pages, count)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was listed %d times", id, n)
		}
	}
}
