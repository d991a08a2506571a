package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	imageCommit = "abc1234000000000000000000000000000000000"
	gitCommit   = "1f2ac83000000000000000000000000000000000"
)

func event(id, name string, s modelv1.EventStatus, at int) *modelv1.Event {
	return &modelv1.Event{Id: id, Name: name, Data: "web:v9", Status: s, Labels: map[string]string{"env": "prod", "app": "web"}, CreatedAt: minutesAgo(at) / 1000}
}

// eventful returns the API of an agent with three events.
func eventful(t *testing.T) *fakeAPI {
	written := event("e2", "image-update", modelv1.EventStatus_EVENT_SUCCESS, 4)
	written.PushedCommit, written.HandledAt = gitCommit, written.CreatedAt+7
	failed := event("e1", "image-update", modelv1.EventStatus_EVENT_FAILURE, 30)
	failed.StatusDescription, failed.PullRequestUrl = "the branch is protected", "https://git.example.com/apps/pulls/12"
	return calm(t).on("ListEvents", &controlv1.ListEventsResponse{Cursor: "more", Events: []*modelv1.Event{event("e3", "image-update", modelv1.EventStatus_EVENT_NOT_HANDLED, 1), written, failed}})
}

// TestEvents: each event is shown with what was written for it, or why not.
func TestEvents(t *testing.T) {
	body := golden(t, "events", eventful(t).get("/events"))
	for _, want := range []string{
		"The last 3 events: 1 written into Git, 1 waits, 1 failed.", "app=web, env=prod", "the branch is protected", `href="/trace?event=e1"`, `href="/trace?commit=1f2ac83`, "took 7 s",
		`href="https://git.example.com/apps/pulls/12"`, "cursor=more", "seen=e3",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if body := bodyOf(t, calm(t).on("ListEvents", &controlv1.ListEventsResponse{}).get("/events")); !strings.Contains(body, "pipectl event register") {
		t.Error("without events nothing says how to register one:", body)
	}
}

// TestEventFilters: the filters of the address reach the API.
func TestEventFilters(t *testing.T) {
	f := calm(t)
	var asked *controlv1.ListEventsRequest
	f.answers["ListEvents"] = func(m proto.Message) (proto.Message, error) {
		asked = proto.CloneOf(m.(*controlv1.ListEventsRequest))
		return &controlv1.ListEventsResponse{}, nil
	}
	body := bodyOf(t, f.get("/events?name=image&labels=app%3Dweb,env%3Dprod&status=failed&cursor=next"))
	want := &controlv1.ListEventsRequest{Name: "image", Labels: map[string]string{"app": "web", "env": "prod"}, Statuses: []modelv1.EventStatus{modelv1.EventStatus_EVENT_FAILURE}, Limit: 50, Cursor: "next"}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	if !strings.Contains(body, "Nothing matches") {
		t.Error(body)
	}
	if resp := f.get("/events?labels=web"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a label without a value: %s", resp.Status)
	}
}

// TestEventsOfSome: a caller who may not list events can still trace changes.
func TestEventsOfSome(t *testing.T) {
	f := calm(t).on("GetCaller", &controlv1.GetCallerResponse{Subject: "ben", Permissions: []*controlv1.CallerPermission{{Permission: "view", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_SOME}}}).
		fails("ListEvents", codes.PermissionDenied, "no")
	body := bodyOf(t, f.get("/events"))
	if !strings.Contains(body, `action="/trace"`) || !strings.Contains(body, "needs the permission to view all applications") {
		t.Error(body)
	}
}

// TestNewEventsAreOffered: the stream changes shown rows in place and counts new events.
func TestNewEventsAreOffered(t *testing.T) {
	f := eventful(t)
	v := &visit{Handler: f.page(), r: request("GET", "/events/live?seen=e2", ""), ctx: signedIn(t), now: noon, allowed: map[string]bool{},
		caller: &controlv1.GetCallerResponse{Permissions: []*controlv1.CallerPermission{{Permission: "view", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_EVERYWHERE}}}}
	src, err := liveEvents(v)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := src.parts(v)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]part{}
	for _, p := range parts {
		ids[p.id] = p
	}
	text, err := html(t.Context(), ids["resort"].body)
	if err != nil || !strings.Contains(text, "1 new event: show") || !strings.Contains(text, `href="/events"`) {
		t.Errorf("%v: %s", err, text)
	}
	if _, new := ids["event-e3"]; new || ids["event-e2"].body == nil || ids["event-e1"].body == nil {
		t.Errorf("the stream has the parts %v", ids)
	}
}

// traceOf returns a trace of an event that was deployed by one application and not by another.
func traceOf() *controlv1.DeploymentTrace {
	done := modelv1.EventStatus_EVENT_SUCCESS
	brief := func(id string, s modelv1.DeploymentStatus, reason string) *controlv1.DeploymentBrief {
		return &controlv1.DeploymentBrief{DeploymentId: id, Status: s, StatusReason: reason, Commit: gitCommit, By: "ana", CreatedAtMs: minutesAgo(8), CompletedAtMs: minutesAgo(6)}
	}
	return &controlv1.DeploymentTrace{
		Events: []*controlv1.TracedEvent{{EventId: "e2", Name: "image-update", Data: "web:v9", SourceCommit: imageCommit, SourceUrl: "https://git.example.com/web/commit/abc", RegisteredAtMs: minutesAgo(10), Status: &done}},
		Commits: []*controlv1.TracedCommit{{
			RepositoryId: "apps", Hash: gitCommit, Message: "Update web to v9", Author: "piped", Branch: "main", CommittedAtMs: minutesAgo(9), EventIds: []string{"e2"},
			PullRequests: []*controlv1.TracedPullRequest{{Number: 12, Link: controlv1.PullRequestLink_PULL_REQUEST_LINK_MERGED}},
			Deployments: []*controlv1.TracedDeployment{
				{Deployment: brief("d-web", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, ""), ApplicationId: "web-id", ApplicationName: "web", PlatformProvider: "eu-1", TriggerKind: modelv1.TriggerKind_TRIGGER_KIND_ON_COMMIT, ChainId: "c1",
					Phases: []*controlv1.DeploymentPhase{
						{Status: modelv1.DeploymentStatus_DEPLOYMENT_PENDING, FromMs: minutesAgo(8), ToMs: minutesAgo(8) + 30_000},
						{Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, FromMs: minutesAgo(8) + 30_000, ToMs: minutesAgo(6)},
						{Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, FromMs: minutesAgo(6)},
					},
					Rollouts: []*controlv1.TracedRollout{{RolloutId: "r1", WorkloadKind: "Deployment", WorkloadName: "web", WorkloadNamespace: "prod", Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE, StartedAtMs: minutesAgo(7), CompletedAtMs: minutesAgo(6)}}},
				{Deployment: brief("d-api", modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, "image api:v9 cannot be pulled"), ApplicationId: "api-id", ApplicationName: "api", PlatformProvider: "eu-1", TriggerKind: modelv1.TriggerKind_TRIGGER_KIND_ON_CHAIN, ChainId: "c1", ChainBlock: 1},
			},
		}},
	}
}

// TestTrace: a trace leads from the event over the commit to deployments and rollouts, with times.
func TestTrace(t *testing.T) {
	f := calm(t).on("GetDeploymentTrace", &controlv1.GetDeploymentTraceResponse{Trace: traceOf()})
	body := golden(t, "trace", f.get("/trace?event=e2"))
	at := -1
	for _, want := range []string{
		"image-update web:v9 is not live everywhere: 1 of 2 deployments did not succeed.", "abc1234", "Update web to v9", "#12 (merged)", "+60 s", `href="/deployments/d-web"`, "pending 30 s, running 90 s", "Complete",
		`href="/deployments/d-api"`, "Image api:v9 cannot be pulled.",
	} {
		next := strings.Index(body, want)
		if next <= at {
			t.Errorf("%q stands at %d, want it after %d", want, next, at)
		}
		at = next
	}
	if !strings.Contains(body, `href="/chains/c1"`) || !strings.Contains(body, "/trace/live?event=e2") {
		t.Error(body)
	}
}

// TestHeadlinesOfTraces: the first sentence says what became of the change.
func TestHeadlinesOfTraces(t *testing.T) {
	commits := func(statuses ...modelv1.DeploymentStatus) *controlv1.DeploymentTrace {
		c := &controlv1.TracedCommit{Hash: gitCommit, CommittedAtMs: minutesAgo(10)}
		for _, s := range statuses {
			c.Deployments = append(c.Deployments, &controlv1.TracedDeployment{Deployment: &controlv1.DeploymentBrief{Status: s, CompletedAtMs: minutesAgo(6)}})
		}
		return &controlv1.DeploymentTrace{Commits: []*controlv1.TracedCommit{c}}
	}
	const ok, running = modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_RUNNING
	for want, trace := range map[string]*controlv1.DeploymentTrace{
		"1f2ac83 has not reached Git yet.":                                       {Events: []*controlv1.TracedEvent{{EventId: "e"}}},
		"1f2ac83 is in Git, and nothing was deployed for it.":                    commits(),
		"1f2ac83 is live: 2 deployments succeeded, 4 min after the change.":      commits(ok, ok),
		"1f2ac83 is being deployed: 1 of 2 deployments over.":                    commits(ok, running),
		"1f2ac83 is being deployed: 2 of 3 deployments over, 1 without success.": commits(ok, running, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED),
	} {
		view := &traceView{q: map[string][]string{"commit": {gitCommit}}, trace: trace}
		view.origin = view.begin()
		if got := view.headline(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestFindTrace: what a person types leads to the address of its trace.
func TestFindTrace(t *testing.T) {
	const eventID, deploymentID = "7b0a8c1e-6c9e-4a53-9f0e-0d6f0d2f9a11", "0b9d2a52-54c3-4b61-8f07-0a60c2a1f0b2"
	f := calm(t)
	f.answers["GetDeploymentTrace"] = func(m proto.Message) (proto.Message, error) {
		if m.(*controlv1.GetDeploymentTraceRequest).EventId == eventID {
			return &controlv1.GetDeploymentTraceResponse{}, nil
		}
		return nil, status.Error(codes.NotFound, "nothing is known of it")
	}
	for text, want := range map[string]string{
		"1F2AC83": "/trace?commit=1f2ac83", "apps%2312": "/trace?pull-request=12&repository=apps", eventID: "/trace?event=" + eventID, deploymentID: "/trace?deployment=" + deploymentID,
	} {
		if resp := f.get("/trace?q=" + text); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
			t.Errorf("%s leads to %s %q, want %q", text, resp.Status, resp.Header.Get("Location"), want)
		}
	}
	for target, want := range map[string]int{"/trace?q=web": http.StatusBadRequest, "/trace?pull-request=x&repository=apps": http.StatusBadRequest, "/trace?commit=1f2ac83": http.StatusNotFound, "/trace": http.StatusOK} {
		if resp := f.get(target); resp.StatusCode != want {
			t.Errorf("%s: %s", target, resp.Status)
		}
	}
}

// TestChain: a chain is shown block by block, with why it stands.
func TestChain(t *testing.T) {
	f := calm(t).on("GetDeploymentChain", &controlv1.GetDeploymentChainResponse{Chain: &controlv1.DeploymentChain{
		Id: "c1", State: controlv1.ChainState_CHAIN_STATE_FAILURE, CreatedAtMs: minutesAgo(8), CompletedAtMs: minutesAgo(2),
		Blocks: []*controlv1.DeploymentChainBlock{
			{State: controlv1.ChainState_CHAIN_STATE_SUCCESS, Members: []*controlv1.DeploymentChainMember{{ApplicationId: "web-id", ApplicationName: "web", DeploymentId: "d-web", Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS}}},
			{State: controlv1.ChainState_CHAIN_STATE_FAILURE, Members: []*controlv1.DeploymentChainMember{{ApplicationId: "api-id", ApplicationName: "api", Status: modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, Reason: "onChain is disabled"}}},
			{State: controlv1.ChainState_CHAIN_STATE_CANCELLED, Members: []*controlv1.DeploymentChainMember{{ApplicationId: "docs-id", ApplicationName: "docs", Status: modelv1.DeploymentStatus_DEPLOYMENT_PENDING}}},
		},
	}})
	body := golden(t, "chain", f.get("/chains/c1"))
	for _, want := range []string{"The chain of web failed at block 2 of 3; later blocks do not begin.", "onChain is disabled", `href="/deployments/d-web"`, `href="/applications/docs~docs-id"`, "Not begun", "/chains/c1/live?"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestAddressesOfOthers: an address that an event or a commit brings is a link only if it is one of
// the web.
func TestAddressesOfOthers(t *testing.T) {
	for address, want := range map[string]bool{
		"https://git.example.com/x": true, "http://git.example.com": true, "javascript:alert(1)": false, "data:text/html,x": false, "//evil.example": false, "/agent": false, "https:": false, "": false,
	} {
		if got := onWeb(address); got != want {
			t.Errorf("onWeb(%q) = %t", address, got)
		}
	}
	e := event("e1", "x", modelv1.EventStatus_EVENT_SUCCESS, 1)
	e.PullRequestUrl = "javascript:alert(1)"
	body := bodyOf(t, calm(t).on("ListEvents", &controlv1.ListEventsResponse{Events: []*modelv1.Event{e}}).get("/events"))
	if strings.Contains(body, `href="javascript`) || !strings.Contains(body, "pull request") {
		t.Error(body)
	}
}
