package page

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// entry returns an application in a state.
func entry(name string, state controlv1.ApplicationState, word, reason string) *controlv1.ApplicationEntry {
	return &controlv1.ApplicationEntry{
		Id: "0000" + name + "-id", Name: name, PlatformProvider: "eu-1", RunningCommit: "84e16d9000000000000000000000000000000000",
		Status:          &controlv1.ApplicationStatus{State: state, Word: word, Reason: reason, SinceMs: minutesAgo(4)},
		RunningVersions: []*modelv1.ArtifactVersion{{Name: name, Version: "v2"}},
		LastDeployment: &controlv1.DeploymentBrief{
			DeploymentId: "d-" + name, Commit: "1f2ac83000000000000000000000000000000000", CommitMessage: "Raise the limit", By: "Ana", CreatedAtMs: minutesAgo(5),
			Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING,
		},
	}
}

// busy returns the API of an agent where something is in every state.
func busy(t *testing.T, permissions ...string) *fakeAPI {
	const state = "APPLICATION_STATE_"
	apps := []*controlv1.ApplicationEntry{
		entry("web", controlv1.ApplicationState_APPLICATION_STATE_FAILED, "Failed, 84e16d9 live", "image registry.example/web:v9 cannot be pulled"),
		entry("search", controlv1.ApplicationState_APPLICATION_STATE_DRIFTED, "Drifted", "spec.replicas of Deployment search differs, changed by kubectl-edit"),
		entry("checkout", controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL, "Waiting for approval", "1 approval of payments"),
		entry("catalog", controlv1.ApplicationState_APPLICATION_STATE_HELD, "Held", "held by ana: wait for the fix"),
		entry("billing", controlv1.ApplicationState_APPLICATION_STATE_DEPLOYING, "K8S_PRIMARY_ROLLOUT 2 of 4", ""),
	}
	apps[0].LastDeployment.Status, apps[0].LastDeployment.CompletedAtMs = modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, minutesAgo(4)
	apps[1].LastDeployment.Status, apps[1].LastDeployment.CompletedAtMs = modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, minutesAgo(4)
	apps[1].LastDeployment.Commit = apps[1].RunningCommit
	counts := &controlv1.Facet{Name: "state", Values: []*controlv1.FacetCount{{Value: "SYNCED", Count: 29}}}
	for _, a := range apps {
		counts.Values = append(counts.Values, &controlv1.FacetCount{Value: strings.TrimPrefix(a.Status.State.String(), state), Count: 1})
	}
	median := int64(51_000)
	f := newFake(t, append(permissions, "view")...).
		on("SearchApplications", &controlv1.SearchApplicationsResponse{Applications: apps, Total: 5, Facets: []*controlv1.Facet{counts}}).
		on("GetStatus", &controlv1.GetStatusResponse{Clusters: []*controlv1.ClusterStatus{{Name: "eu-2", Error: "dial tcp: connection refused", FailingSinceMs: minutesAgo(30)}}}).
		on("GetDeliveryFigures", &controlv1.GetDeliveryFiguresResponse{Total: &controlv1.DeliveryFigures{Succeeded: 32, Failed: 2, LeadTimeMedianMs: &median}}).
		on("ListDeployments", &apiservice.ListDeploymentsResponse{Deployments: []*modelv1.Deployment{{
			Id: "d-ledger", ApplicationId: "0000ledger-id", ApplicationName: "ledger", Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, CreatedAtMs: minutesAgo(3), CompletedAtMs: minutesAgo(2),
			Trigger: &modelv1.DeploymentTrigger{Commit: &modelv1.Commit{Hash: "5c0ffee000000000000000000000000000000000", Message: "Fix rounding\n\nLong.", Author: "Ben"}},
		}}}).
		on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: waitingDeployment()})
	return f
}

// waitingDeployment waits for the second of two approvals.
func waitingDeployment() *modelv1.Deployment {
	return &modelv1.Deployment{
		Id: "d-checkout", ApplicationId: "0000checkout-id", ApplicationName: "checkout", Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, RunningCommitHash: "84e16d9000000000000000000000000000000000",
		Trigger: &modelv1.DeploymentTrigger{Commit: &modelv1.Commit{Hash: "1f2ac83000000000000000000000000000000000", Message: "Raise the limit"}},
		Stages: []*modelv1.PipelineStage{{
			Id: "gate", Name: "WAIT_APPROVAL", Desc: "canary at 20 %", Status: modelv1.StageStatus_STAGE_RUNNING, AvailableOperation: modelv1.ManualOperation_MANUAL_OPERATION_APPROVE,
			AuthorizedOperators: []string{"jane", "ana@example.com"}, RequiredApprovals: 2,
			Decisions: []*modelv1.StageDecision{{Verdict: modelv1.StageDecision_VERDICT_APPROVED, Subject: "jane", AtMs: minutesAgo(1)}},
		}},
	}
}

// TestNow: the start page shows what needs a person, with the reasons, and offers what the caller
// may do.
func TestNow(t *testing.T) {
	body := golden(t, "now", busy(t, "sync", "approve").get("/"))
	body = strings.Join(strings.Fields(body), " ")
	for _, want := range []string{
		`Not live: <code class="commit" title="">1f2ac83</code> Raise the limit by Ana`, `Not live yet: <code class="commit" title="">1f2ac83</code> Raise the limit by Ana`,
		"1 deployment waits for approval, 3 things are not well.", "approval by jane or ana@example.com (1 of 2: jane) · canary at 20 %", "Cluster eu-2 cannot be reached",
		"cluster eu-2 away since 11:30", "34 deployments today", "2 failed", "median 51 s", "/actions/approve?deployment=d-checkout&amp;stage=gate", "/actions/retry?deployment=d-web", "/actions/heal?application=0000search-id",
		"Fix rounding", "last time 60 s",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestNowOfAViewer: a viewer sees the same without buttons.
func TestNowOfAViewer(t *testing.T) {
	body := bodyOf(t, busy(t).get("/"))
	if strings.Contains(body, "/actions/") || !strings.Contains(body, "cannot be pulled") {
		t.Error("a viewer is offered an action, or sees no reason:", body)
	}
}

// TestNowWithoutTheAgent: callers who may view some applications only do not see the agent's state.
func TestNowWithoutTheAgent(t *testing.T) {
	f := busy(t)
	caller := &controlv1.GetCallerResponse{Subject: "ben", Permissions: []*controlv1.CallerPermission{{Permission: "view", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_SOME}}}
	f.on("GetCaller", caller).fails("GetStatus", codes.PermissionDenied, "no")
	body := bodyOf(t, f.get("/"))
	if strings.Contains(body, "eu-2") || !strings.Contains(body, "cannot be pulled") {
		t.Error("the page shows a cluster, or no reason:", body)
	}
}

// TestNowWhenAllIsWell: nothing to do means that the page says so.
func TestNowWhenAllIsWell(t *testing.T) {
	body := bodyOf(t, calm(t).get("/"))
	if !strings.Contains(body, "All is well: 1 application, nothing waits for you.") || !strings.Contains(body, "Nothing was deployed today.") || strings.Contains(body, "Not well") {
		t.Error(body)
	}
	none := calm(t).on("SearchApplications", &controlv1.SearchApplicationsResponse{})
	if body := bodyOf(t, none.get("/")); !strings.Contains(body, "There are no applications yet.") || !strings.Contains(body, "\nkind: KubernetesApp\nspec: {name: web}\n") {
		t.Error("without applications:", body)
	}
}

// TestCommitNotLive: Now names the commit that is not live, and says whether it is under way.
func TestCommitNotLive(t *testing.T) {
	for name, c := range map[string]struct {
		running, last string
		ended         int64
		want          string
	}{
		"failed":                          {"a", "b", 1, "Not live:"},
		"under way":                       {"a", "b", 0, "Not live yet:"},
		"first deployment":                {"", "b", 0, "Not live yet:"},
		"the same commit is synced again": {"a", "a", 0, ""},
		"live":                            {"a", "a", 1, ""},
		"never deployed":                  {"", "", 0, ""},
	} {
		e := &controlv1.ApplicationEntry{RunningCommit: c.running, LastDeployment: &controlv1.DeploymentBrief{Commit: c.last, CompletedAtMs: c.ended}}
		if d, word := commitNotLive(e); word != c.want || (d != nil) != (c.want != "") {
			t.Errorf("%s: %q, want %q", name, word, c.want)
		}
	}
	if d, _ := commitNotLive(&controlv1.ApplicationEntry{}); d != nil {
		t.Error("an application without a deployment has a commit that is not live")
	}
}

// TestHostileContent: what others write is shown as text, without the characters that change how a
// terminal or a browser shows the text after them.
func TestHostileContent(t *testing.T) {
	const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(1)> <hx-partial hx-target="body"></hx-partial>` + "\x1b[31mred \u202eevil \x1b]0;title"
	f := busy(t, "sync", "approve")
	e := entry(hostile, controlv1.ApplicationState_APPLICATION_STATE_FAILED, hostile, hostile)
	e.Labels, e.PlatformProvider, e.LastDeployment.By, e.LastDeployment.CommitMessage = map[string]string{hostile: hostile}, hostile, hostile, hostile
	f.on("SearchApplications", &controlv1.SearchApplicationsResponse{Applications: []*controlv1.ApplicationEntry{e}, Total: 1, Facets: []*controlv1.Facet{{Name: "label:" + hostile, Values: []*controlv1.FacetCount{{Value: hostile}, {Value: "b"}}}}})
	for _, target := range []string{"/", "/applications", "/applications?q=%3Cscript%3Ealert(1)"} {
		body := bodyOf(t, f.get(target))
		for _, forbidden := range []string{"<script>alert", "<img", `"'>`, `<hx-partial hx-target="body"`, "\x1b", "\u202e"} {
			if strings.Contains(body, forbidden) {
				t.Errorf("%s contains %q", target, forbidden)
			}
		}
	}
}

// TestKeysOfParts: the key of the live parts changes with the content, and not with the time.
func TestKeysOfParts(t *testing.T) {
	f := busy(t)
	read := func() string {
		v := &visit{Handler: f.page(), r: request("GET", "/", ""), ctx: signedIn(t), now: noon, allowed: map[string]bool{}}
		v.caller = &controlv1.GetCallerResponse{}
		view, err := v.readNow(&nowRead{lasts: map[string]int64{}})
		if err != nil {
			t.Fatal(err)
		}
		return keyOfParts(view.parts(v))
	}
	first := read()
	if again := read(); again != first {
		t.Errorf("the key changed from %s to %s without a change", first, again)
	}
	f.answers["SearchApplications"] = func(proto.Message) (proto.Message, error) {
		return &controlv1.SearchApplicationsResponse{Total: 1}, nil
	}
	if read() == first {
		t.Error("the key did not change with the content")
	}
}
