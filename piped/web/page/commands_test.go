package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// commandedAPI returns the API of requests to sync, one in each state.
func commandedAPI(t *testing.T) *fakeAPI {
	f := calm(t)
	deployed := func(id string) map[string]string { return map[string]string{"TriggeredDeploymentID": "d-" + id} }
	commands := map[string]*modelv1.Command{
		"queued":    {},
		"waits":     {Metadata: map[string]string{"Waiting": "another deployment runs"}},
		"refused":   {Status: modelv1.CommandStatus_COMMAND_FAILED, Metadata: map[string]string{"Reason": "the commit <b> is unknown"}},
		"runs":      {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("runs")},
		"held":      {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("held")},
		"back":      {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("back")},
		"preview":   {Type: modelv1.Command_BUILD_PLAN_PREVIEW},
		"asks":      {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("asks")},
		"done":      {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("done")},
		"failed":    {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("failed")},
		"cancelled": {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("cancelled")},
		"removed":   {Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: deployed("removed")},
	}
	deployments := map[string]*modelv1.Deployment{
		"d-runs":      {Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, Wait: &modelv1.DeploymentWait{WaitsFor: "stage K8S_CANARY_ROLLOUT", StageId: "stage-0"}},
		"d-held":      {Status: modelv1.DeploymentStatus_DEPLOYMENT_PENDING, Wait: &modelv1.DeploymentWait{WaitsFor: "Held: the sync window opens at 09:00"}},
		"d-back":      {Status: modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK, StatusReason: "its probe failed", Wait: &modelv1.DeploymentWait{WaitsFor: "stage ROLLBACK", StageId: "stage-1"}},
		"d-asks":      {Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, Wait: &modelv1.DeploymentWait{Approval: true, WaitsFor: "1 approval of jane"}},
		"d-done":      {Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, CompletedAtMs: minutesAgo(1)},
		"d-cancelled": {Status: modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED, StatusReason: "a newer commit came", CompletedAtMs: minutesAgo(1)},
		"d-failed":    {Status: modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, StatusReason: "the image cannot be pulled", CompletedAtMs: minutesAgo(1)},
	}
	f.answers["GetCommand"] = func(m proto.Message) (proto.Message, error) {
		id := m.(*apiservice.GetCommandRequest).CommandId
		c := commands[id]
		if c == nil {
			return nil, errOf(codes.NotFound, "Command is not found")
		}
		c.Id, c.ApplicationId = id, "id-of-"+id
		return &apiservice.GetCommandResponse{Command: c}, nil
	}
	f.answers["GetDeployment"] = func(m proto.Message) (proto.Message, error) {
		d := deployments[m.(*apiservice.GetDeploymentRequest).DeploymentId]
		if d == nil {
			return nil, errOf(codes.NotFound, "Deployment is not found")
		}
		d.Id, d.CreatedAtMs = m.(*apiservice.GetDeploymentRequest).DeploymentId, minutesAgo(2)
		d.Trigger = &modelv1.DeploymentTrigger{Commit: &modelv1.Commit{Hash: "84e16d9000000000000000000000000000000000", Message: "Fix it"}}
		return &apiservice.GetDeploymentResponse{Deployment: d}, nil
	}
	f.streams["WatchApplications"] = func(m proto.Message) ([]proto.Message, error) {
		var out []proto.Message
		for _, id := range m.(*controlv1.WatchApplicationsRequest).ApplicationIds {
			out = append(out, &controlv1.WatchApplicationsResponse{Application: &controlv1.ApplicationEntry{Id: id, Name: strings.TrimPrefix(id, "id-of-")}})
		}
		return append(out, &controlv1.WatchApplicationsResponse{CaughtUp: true}), nil
	}
	return f
}

// TestCommands: each request is shown with its application, what became of it, and why.
func TestCommands(t *testing.T) {
	f := commandedAPI(t)
	body := golden(t, "commands", f.get("/commands?id=queued&id=waits&id=refused&id=runs&id=held&id=back&id=preview&id=asks&id=done&id=failed&id=cancelled&id=removed&id=gone&id=gone&other=x"))
	for _, want := range []string{
		"13 requests to sync: 1 deployed, 2 failed, 1 cancelled, 2 not found, 1 no longer stored, 6 not finished.", "Held: the sync window opens at 09:00", "its probe failed", "No longer stored", "Queued", "The agent waits: another deployment runs", "Refused", "the commit &lt;b&gt; is unknown",
		"K8S_CANARY_ROLLOUT", "Waiting for approval", "It waits for 1 approval of jane.", "It took 60 s.", "the image cannot be pulled", "Not found", `href="/deployments/d-done"`, `href="/applications/queued~`,
		`hx-sse:connect="/commands/live?from=`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
}

// TestCommandsAreLimited: an address without a request, or with too many, is not valid; an agent that
// fails is no request that does not exist.
func TestCommandsAreLimited(t *testing.T) {
	many := "/commands?"
	for i := range maxCommands + 1 {
		many += fmt.Sprint("&id=", i)
	}
	for _, address := range []string{"/commands", "/commands?id=", many} {
		if resp := commandedAPI(t).get(address); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%.20s: %s", address, resp.Status)
		}
	}
	if resp := commandedAPI(t).fails("GetCommand", codes.Unavailable, "the agent stops").get("/commands?id=queued"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.Status)
	}
}

// TestLiveCommands: the stream has a part for each request, whose key changes with its deployment.
func TestLiveCommands(t *testing.T) {
	f := commandedAPI(t)
	v, err := f.page().visit(nil, request(http.MethodGet, "/commands/live?id=queued&id=runs&from=x", ""))
	if err != nil {
		t.Fatal(err)
	}
	src, err := liveCommands(v)
	if err != nil {
		t.Fatal(err)
	}
	before, err := src.parts(v)
	if err != nil {
		t.Fatal(err)
	}
	f.on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: &modelv1.Deployment{Id: "d-runs", Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS}})
	after, err := src.parts(v)
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for i := range after {
		if before[i].key != after[i].key {
			changed = append(changed, after[i].id)
		}
	}
	if got := strings.Join(changed, " "); got != "commands command-runs" {
		t.Errorf("changed: %q", got)
	}
}
