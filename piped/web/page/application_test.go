package page

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// drifted returns the API of an application that differs from Git.
func drifted(t *testing.T, permissions ...string) *fakeAPI {
	app := &modelv1.Application{
		Id: "0000search-id", Name: "search", PlatformProvider: "eu-1", RunningCommit: "84e16d9000000000000000000000000000000000", Labels: map[string]string{"team": "core"},
		GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps", Remote: "https://git.example.com/apps.git", Branch: "main"}, Path: "search", ConfigFilename: "app.pipecd.yaml"},
	}
	web := &modelv1.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "search"}
	return newFake(t, append(permissions, "view")...).
		on("SearchApplications", &controlv1.SearchApplicationsResponse{Applications: []*controlv1.ApplicationEntry{entry("search", controlv1.ApplicationState_APPLICATION_STATE_DRIFTED, "Drifted", "")}}).
		on("GetStatus", &controlv1.GetStatusResponse{}).
		on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: app.Id, ApplicationName: app.Name}}}).
		on("GetApplication", &apiservice.GetApplicationResponse{Application: app}).
		on("GetApplicationSummary", &controlv1.GetApplicationSummaryResponse{Summary: &controlv1.ApplicationSummary{
			Headline: "search is live at 84e16d9 since 11:00, by Ana; spec.replicas of Deployment search differs.", Application: app, Health: modelv1.Health_HEALTH_HEALTHY,
			Status: &controlv1.ApplicationStatus{State: controlv1.ApplicationState_APPLICATION_STATE_DRIFTED, Word: "Drifted"}, RunningCommit: app.RunningCommit, WantedCommit: app.RunningCommit,
			Drift:       &controlv1.DriftSummary{Text: "spec.replicas of Deployment search differs", Objects: 1, Fields: 1, SinceMs: minutesAgo(3)},
			Deployments: []*controlv1.DeploymentBrief{{DeploymentId: "d-search", CompletedAtMs: minutesAgo(60)}},
		}}).
		on("GetLiveState", &controlv1.GetLiveStateResponse{LiveState: &modelv1.LiveState{Objects: []*modelv1.LiveObject{{
			Object: web, Health: modelv1.Health_HEALTH_DEGRADED, HealthReason: "1 of 2 pods is not ready", Replicas: 2, AvailableReplicas: 1, CreatedAtMs: minutesAgo(90),
			Children: []*modelv1.LiveObject{{Object: &modelv1.ObjectRef{Kind: "Pod", Name: "search-1"}, Health: modelv1.Health_HEALTH_DEGRADED, HealthReason: "CrashLoopBackOff"}}, ChildrenLeftOut: 7,
			Folded: []*modelv1.LiveFold{{Kind: "Pod", Shown: 1, Counts: []*modelv1.HealthCount{{Health: modelv1.Health_HEALTH_HEALTHY, Count: 6}, {Health: modelv1.Health_HEALTH_PROGRESSING, Count: 1}}}},
		}}}}).
		on("GetDriftReport", &controlv1.GetDriftReportResponse{Report: &modelv1.DriftReport{Objects: []*modelv1.ObjectDrift{{
			Object: web, Kind: modelv1.DriftKind_DRIFT_KIND_CHANGED, Diff: "--- git\n+++ live\n-  replicas: 3\n+  replicas: 5\n",
			Fields: []*modelv1.FieldDrift{{Path: "spec.replicas", GitValue: "3", LiveValue: "5", Manager: "kubectl-edit", ChangedAtMs: minutesAgo(3)}},
		}}}}).
		on("ListDriftReports", &controlv1.ListDriftReportsResponse{Reports: []*modelv1.DriftReport{{Objects: []*modelv1.ObjectDrift{{}}, BeganAtMs: minutesAgo(600), EndedAtMs: minutesAgo(595), End: modelv1.DriftEnd_DRIFT_END_REVERTED}}}).
		on("ListDeployments", &apiservice.ListDeploymentsResponse{}).
		on("ListRollouts", &controlv1.ListRolloutsResponse{})
}

// TestApplication: the view answers whether the application is live, shows the tree of objects with
// reasons, and offers what the caller may do.
func TestApplication(t *testing.T) {
	body := golden(t, "application", drifted(t, "sync", "rollback", "enable", "delete").get("/applications/search~0000search"))
	for _, want := range []string{"spec.replicas of Deployment search differs.", "CrashLoopBackOff", "1 of 2", "7 more Pods: 6 healthy, 1 progressing", "/actions/sync?", "/actions/heal?", "/actions/rollback?", "/actions/delete?", "Git wants"} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if body := bodyOf(t, drifted(t).get("/applications/search")); strings.Contains(body, "/actions/") {
		t.Error("a viewer is offered an action")
	}
}

// TestNothingToCompare: a commit that does not concern the application is explained, and a drift
// that lasts is not listed among the earlier ones.
func TestNothingToCompare(t *testing.T) {
	f := drifted(t).on("ListDriftReports", &controlv1.ListDriftReportsResponse{Reports: []*modelv1.DriftReport{{Objects: []*modelv1.ObjectDrift{{}}, BeganAtMs: minutesAgo(3)}}})
	resp, err := f.answers["GetApplicationSummary"](nil)
	if err != nil {
		t.Fatal(err)
	}
	const ahead = "This commit changes nothing here"
	if body := bodyOf(t, f.get("/applications/search?tab=drift")); strings.Contains(body, "Earlier") || strings.Contains(body, ahead) {
		t.Errorf("a drift that lasts: %s", body)
	}
	summary := resp.(*controlv1.GetApplicationSummaryResponse).Summary
	summary.WantedCommit, summary.Status.State = "1f2ac83000000000000000000000000000000000", controlv1.ApplicationState_APPLICATION_STATE_SYNCED
	if body := bodyOf(t, f.get("/applications/search")); !strings.Contains(body, ahead) {
		t.Errorf("a commit that does not concern the application: %s", body)
	}
}

// TestAwaitedAdoption: a caller who may sync is offered the decision about live objects while the
// application awaits one; other callers are not.
func TestAwaitedAdoption(t *testing.T) {
	awaiting := func(f *fakeAPI, list ...*controlv1.Adoption) *fakeAPI {
		resp, err := f.answers["GetApplicationSummary"](nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.(*controlv1.GetApplicationSummaryResponse).Summary.Application.Notice = "Not deployed yet: live objects await a decision"
		return f.on("ListAdoptions", &controlv1.ListAdoptionsResponse{Adoptions: list})
	}
	for name, c := range map[string]struct {
		api  *fakeAPI
		want bool
	}{
		"awaited":           {awaiting(drifted(t, "sync"), &controlv1.Adoption{ApplicationId: "0000search-id", Token: "tok"}), true},
		"of a viewer":       {awaiting(drifted(t), &controlv1.Adoption{ApplicationId: "0000search-id", Token: "tok"}), false},
		"of another notice": {awaiting(drifted(t, "sync")), false},
	} {
		body := bodyOf(t, c.api.get("/applications/search"))
		if got := strings.Contains(body, "/actions/adopt?"); got != c.want {
			t.Errorf("%s: the decision is offered: %t, want %t", name, got, c.want)
		}
		if !strings.Contains(body, "live objects await a decision") {
			t.Errorf("%s: the view lacks the notice", name)
		}
	}
}

// TestApplicationTabs: each tab has an address, and shows what it is about.
func TestApplicationTabs(t *testing.T) {
	for tab, want := range map[string][]string{
		"drift":       {"spec.replicas", "kubectl-edit", ">3<", ">5<", "it was changed back in the cluster", `class="removed"`},
		"deployments": {"No deployments"}, "rollouts": {"No rollouts"},
		"config": {"https://git.example.com/apps.git", "search/app.pipecd.yaml", "Label team"},
	} {
		body := bodyOf(t, drifted(t).get("/applications/search?tab="+tab))
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s lacks %q", tab, text)
			}
		}
	}
}

// TestClusterAway: a tab that cannot be read says why, and the rest of the view stays.
func TestClusterAway(t *testing.T) {
	resp := drifted(t).fails("GetLiveState", codes.Unavailable, "cluster eu-1 does not answer: connection refused").get("/applications/search")
	body := bodyOf(t, resp)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "cluster eu-1 does not answer") || !strings.Contains(body, "search is live at 84e16d9") {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// TestAmbiguousName: several applications of a name are offered, an unknown one is not found.
func TestAmbiguousName(t *testing.T) {
	f := drifted(t).on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "0000aaaa-1", ApplicationName: "web", Path: "apps/a"}, {Id: "0000bbbb-2", ApplicationName: "web", Path: "apps/b"}}})
	resp := f.get("/applications/web")
	if body := bodyOf(t, resp); resp.StatusCode != http.StatusMultipleChoices || !strings.Contains(body, "/applications/web~0000bbbb") || !strings.Contains(body, "apps/a") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if resp := f.on("Resolve", &controlv1.ResolveResponse{}).get("/applications/web"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown application: %s", resp.Status)
	}
}
