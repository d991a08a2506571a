package page

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// actor is a caller with every permission, at an application that differs from Git and a
// deployment that waits for an approval.
func actor(t *testing.T) *fakeAPI {
	f := drifted(t, "approve", "sync", "cancel", "rollback", "enable", "delete", "keys", "administer")
	object := []*modelv1.ObjectRef{{Kind: "Deployment", Name: "search"}}
	return f.on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: waitingDeployment()}).
		on("ListDeployments", &apiservice.ListDeploymentsResponse{Deployments: []*modelv1.Deployment{{
			Id: "d-before", CompletedAtMs: minutesAgo(90), Trigger: &modelv1.DeploymentTrigger{Commit: &modelv1.Commit{Hash: "0dd0000", Message: "Before"}},
		}}}).
		on("ListAdoptions", &controlv1.ListAdoptionsResponse{Adoptions: []*controlv1.Adoption{{Token: "tok", Objects: []*controlv1.AdoptedObject{{Object: object[0], Changes: true, Managers: []string{"helm"}}}}}}).
		on("ApproveStage", &controlv1.ApproveStageResponse{CommandId: "c1"}).on("RejectStage", &controlv1.RejectStageResponse{CommandId: "c1"}).
		on("SkipStage", &controlv1.SkipStageResponse{CommandId: "c1"}).on("RetryDeployment", &controlv1.RetryDeploymentResponse{CommandId: "c1"}).
		on("CancelDeployment", &controlv1.CancelDeploymentResponse{CommandId: "c1"}).on("SyncApplication", &controlv1.SyncApplicationResponse{CommandId: "c1"}).
		on("RollbackApplication", &controlv1.RollbackApplicationResponse{CommandId: "c1", Commit: "0dd0000"}).
		on("EnableApplication", &controlv1.EnableApplicationResponse{}).on("DisableApplication", &apiservice.DisableApplicationResponse{}).
		on("ConfirmPrune", &controlv1.ConfirmPruneResponse{CommandId: "c1", Objects: object}).on("DecideAdoption", &controlv1.DecideAdoptionResponse{CommandId: "c1"}).
		on("DeleteApplication", &controlv1.DeleteApplicationResponse{CommandId: "c1", Objects: object}).
		on("ListAPIKeys", &controlv1.ListAPIKeysResponse{ApiKeys: []*modelv1.APIKey{{Id: "k1", Name: "ci"}}}).
		on("CreateAPIKey", &controlv1.CreateAPIKeyResponse{ApiKey: &modelv1.APIKey{Id: "k2", Name: "ci"}, Key: "k2.secret"}).on("DisableAPIKey", &controlv1.DisableAPIKeyResponse{}).
		on("ListSessions", &controlv1.ListSessionsResponse{Sessions: []*controlv1.Session{{Id: "s1", Subject: "ben", CreatedAtMs: minutesAgo(9)}}}).on("EndSession", &controlv1.EndSessionResponse{}).
		on("GetStatus", &controlv1.GetStatusResponse{Receivers: []*controlv1.ReceiverStatus{{
			Name: "slack", DeadLetterCount: 30, DeadLetters: []*controlv1.DeadLetter{{Event: "DEPLOYMENT_SUCCEEDED", Error: "410 gone", GivenUpAtMs: minutesAgo(8)}},
			OldestDeadLetter: &controlv1.DeadLetter{Event: "DEPLOYMENT_FAILED", Error: "413 too large", GivenUpAtMs: minutesAgo(50)},
		}}}).
		on("ReplayDeadLetters", &controlv1.ReplayDeadLettersResponse{Count: 30}).on("DropDeadLetters", &controlv1.DropDeadLettersResponse{Count: 30}).
		on("DisableUser", &controlv1.DisableUserResponse{}).on("EnableUser", &controlv1.EnableUserResponse{})
}

// TestActions: each action has a dialog that says what will happen, and its form calls the API with
// what the user chose.
func TestActions(t *testing.T) {
	app, stage := "application=0000search-id", "deployment=d-checkout&stage=gate"
	cases := map[string]struct {
		about, form, says string
		method            string
		want              proto.Message
	}{
		"approve":       {stage, "reason=fine", "Raise the limit", "ApproveStage", &controlv1.ApproveStageRequest{DeploymentId: "d-checkout", StageId: "gate", Reason: "fine"}},
		"reject":        {stage, "reason=no", "returns to 84e16d9", "RejectStage", &controlv1.RejectStageRequest{DeploymentId: "d-checkout", StageId: "gate", Reason: "no"}},
		"skip":          {stage, "", "next stage", "SkipStage", &controlv1.SkipStageRequest{DeploymentId: "d-checkout", StageId: "gate"}},
		"retry":         {"deployment=d-checkout", "", "same commit", "RetryDeployment", &controlv1.RetryDeploymentRequest{DeploymentId: "d-checkout"}},
		"cancel":        {"deployment=d-checkout", "rollback=no", "Leave everything", "CancelDeployment", &controlv1.CancelDeploymentRequest{DeploymentId: "d-checkout", ForceNoRollback: true}},
		"sync":          {app, "strategy=PIPELINE&commit=+abc+", "What Git wants", "SyncApplication", &controlv1.SyncApplicationRequest{ApplicationId: "0000search-id", Strategy: modelv1.SyncStrategy_PIPELINE, Commit: "abc"}},
		"heal":          {app, "", "Deployment search in shop: spec.replicas differs", "SyncApplication", &controlv1.SyncApplicationRequest{ApplicationId: "0000search-id"}},
		"rollback":      {app, "deployment=d-before&reason=broken", "0dd0000 Before", "RollbackApplication", &controlv1.RollbackApplicationRequest{ApplicationId: "0000search-id", DeploymentId: "d-before", Reason: "broken"}},
		"enable":        {app, "", "Commits deploy it again", "EnableApplication", &controlv1.EnableApplicationRequest{ApplicationId: "0000search-id"}},
		"disable":       {app, "", "goes on running", "DisableApplication", &apiservice.DisableApplicationRequest{ApplicationId: "0000search-id"}},
		"confirm-prune": {app, "confirm=search", "Delete 1 object of search?", "ConfirmPrune", &controlv1.ConfirmPruneRequest{ApplicationId: "0000search-id"}},
		"adopt":         {app, "decision=decline%3Atok", "Deployment search (changed), managed by helm", "DecideAdoption", &controlv1.DecideAdoptionRequest{ApplicationId: "0000search-id", Token: "tok"}},
		"delete":        {app, "confirm=search&cascade=yes", "deletes 1 object: Deployment search", "DeleteApplication", &controlv1.DeleteApplicationRequest{ApplicationId: "0000search-id", Cascade: true}},
		"create-key": {"", "name=ci&role=deployer&labels=team%3Dpayments", "Its secret is shown once", "CreateAPIKey", &controlv1.CreateAPIKeyRequest{
			Name: "ci", RoleName: "deployer", Applications: &modelv1.ApplicationSelector{Labels: map[string]string{"team": "payments"}}}},
		"disable-key":  {"key=k1", "confirm=ci", "cannot be enabled again", "DisableAPIKey", &controlv1.DisableAPIKeyRequest{Id: "k1"}},
		"end-session":  {"session=s1", "", "ben can sign in again", "EndSession", &controlv1.EndSessionRequest{Id: "s1"}},
		"disable-user": {"issuer=corp&subject=ben", "", "1 session ends", "DisableUser", &controlv1.DisableUserRequest{Issuer: "corp", Subject: "ben"}},
		"enable-user":  {"issuer=corp&subject=ben", "", "Sessions that were ended stay so", "EnableUser", &controlv1.EnableUserRequest{Issuer: "corp", Subject: "ben"}},

		"replay-dead-letters": {"receiver=slack", "", "the newest: DEPLOYMENT_SUCCEEDED, given up 8 min ago: 410 gone", "ReplayDeadLetters", &controlv1.ReplayDeadLettersRequest{Receiver: "slack"}},
		"drop-dead-letters":   {"receiver=slack", "confirm=slack", "the oldest: DEPLOYMENT_FAILED, given up 50 min ago: 413 too large", "DropDeadLetters", &controlv1.DropDeadLettersRequest{Receiver: "slack"}},
	}
	for name := range actions() {
		if _, ok := cases[name]; !ok {
			t.Errorf("the test lacks the action %q", name)
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := actor(t)
			asked := f.watch(c.method)
			if body := bodyOf(t, f.get("/actions/"+name+"?"+c.about)); !strings.Contains(body, c.says) || !strings.Contains(body, "pipectl ") {
				t.Errorf("the dialog lacks %q: %s", c.says, body)
			}
			before := len(*asked)
			resp := answerOf(f.page(), request(http.MethodPost, "/actions/"+name, c.about+"&back=%2Fapplications&"+c.form))
			if body := bodyOf(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(body, `href="/applications"`) {
				t.Fatalf("%s: %s", resp.Status, body)
			}
			if len(*asked) == before {
				t.Fatalf("%s was not called", c.method)
			}
			if diff := cmp.Diff(c.want, (*asked)[len(*asked)-1], protocmp.Transform()); diff != "" {
				t.Error("the request differs (-want +got):\n" + diff)
			}
		})
	}
}

// watch records the requests of a method.
func (f *fakeAPI) watch(method string) *[]proto.Message {
	var asked []proto.Message
	answer := f.answers[method]
	f.answers[method] = func(m proto.Message) (proto.Message, error) {
		asked = append(asked, proto.Clone(m))
		return answer(m)
	}
	return &asked
}

// TestDestructiveActionsNeedTheName: without the name, nothing is deleted.
func TestDestructiveActionsNeedTheName(t *testing.T) {
	for name, method := range map[string]string{"delete": "DeleteApplication", "confirm-prune": "ConfirmPrune", "drop-dead-letters": "DropDeadLetters"} {
		f := actor(t)
		asked := f.watch(method)
		resp := answerOf(f.page(), request(http.MethodPost, "/actions/"+name, "application=0000search-id&receiver=slack&cascade=yes&confirm=other"))
		if body := bodyOf(t, resp); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "Nothing was done") {
			t.Errorf("%s: %s: %s", name, resp.Status, body)
		}
		for _, m := range *asked {
			if dry, ok := m.(interface{ GetDryRun() bool }); !ok || !dry.GetDryRun() {
				t.Errorf("%s called %s: %v", name, method, m)
			}
		}
	}
}

// TestBulkSync: every selected application is synced; one that cannot be is named with the reason.
// Both ways lead to the view with the progress.
func TestBulkSync(t *testing.T) {
	f := actor(t)
	f.answers["GetApplication"] = func(m proto.Message) (proto.Message, error) {
		id := m.(*apiservice.GetApplicationRequest).ApplicationId
		return &apiservice.GetApplicationResponse{Application: &modelv1.Application{Id: id, Name: "name-of-" + id}}, nil
	}
	f.answers["SyncApplication"] = func(m proto.Message) (proto.Message, error) {
		id := m.(*controlv1.SyncApplicationRequest).ApplicationId
		if id == "b" {
			return nil, errOf(codes.FailedPrecondition, "it is disabled")
		}
		return &controlv1.SyncApplicationResponse{CommandId: "command-of-" + id}, nil
	}
	selected := url.Values{"application": {"a", "b", "c"}}
	if body := bodyOf(t, f.get("/actions/sync?"+selected.Encode())); !strings.Contains(body, "Sync 3 applications?") || !strings.Contains(body, `value="application=a&amp;application=b&amp;application=c"`) {
		t.Error("the dialog:", body)
	}
	body := bodyOf(t, answerOf(f.page(), request(http.MethodPost, "/actions/sync", selected.Encode())))
	if !strings.Contains(body, "name-of-b: it is disabled") || !strings.Contains(body, "The agent deploys name-of-a, name-of-c.") || !strings.Contains(body, `href="/commands?id=command-of-a&amp;id=command-of-c">Show the progress`) {
		t.Error("the outcome:", body)
	}
	const progress = "/commands?id=command-of-a&id=command-of-c"
	selected = url.Values{"application": {"a", "c"}}
	if resp := answerOf(f.page(), request(http.MethodPost, "/actions/sync", selected.Encode())); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != progress {
		t.Errorf("it leads to %q: %s", resp.Header.Get("Location"), resp.Status)
	}
	r := request(http.MethodPost, "/actions/sync", selected.Encode())
	r.Header.Set("HX-Request", "true")
	if resp := answerOf(f.page(), r); resp.StatusCode != http.StatusOK || resp.Header.Get("HX-Redirect") != progress {
		t.Errorf("the dialog leads to %q: %s", resp.Header.Get("HX-Redirect"), resp.Status)
	}
	if body := bodyOf(t, answerOf(f.page(), request(http.MethodPost, "/actions/sync", "application=b&application=b"))); !strings.Contains(body, "Nothing was synced") || strings.Contains(body, "/commands") {
		t.Error("without any success:", body)
	}
}

// TestCommandState: the dialog follows a request until the agent has done or refused it.
func TestCommandState(t *testing.T) {
	for want, c := range map[string]*modelv1.Command{
		`hx-trigger="load delay:1s"`: {Id: "c1"},
		"waits: the cluster":         {Id: "c1", Metadata: map[string]string{"Waiting": "the cluster"}},
		`href="/deployments/d-new"`:  {Id: "c1", Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, Metadata: map[string]string{"TriggeredDeploymentID": "d-new"}},
		"refused it: no such commit": {Id: "c1", Status: modelv1.CommandStatus_COMMAND_FAILED, Metadata: map[string]string{"Reason": "no such commit"}},
	} {
		body := bodyOf(t, actor(t).on("GetCommand", &apiservice.GetCommandResponse{Command: c}).get("/commands/c1"))
		if !strings.Contains(body, want) {
			t.Errorf("%v lacks %q: %s", c, want, body)
		}
	}
}

// TestFormNamesWhatItIsAbout: the form of a dialog says what the action is about as the address of
// the dialog did, also if the page shows a part of it as a replacement.
func TestFormNamesWhatItIsAbout(t *testing.T) {
	const subject = "ben\u202e\x1b[31m <b>"
	f := actor(t)
	asked := f.watch("DisableUser")
	body := bodyOf(t, f.get("/actions/disable-user?"+url.Values{"issuer": {"corp"}, "subject": {subject}}.Encode()))
	_, rest, _ := strings.Cut(body, `name="about" value="`)
	about, _, _ := strings.Cut(rest, `"`)
	form := url.Values{"about": {strings.ReplaceAll(about, "&amp;", "&")}}
	if resp := answerOf(f.page(), request(http.MethodPost, "/actions/disable-user", form.Encode())); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	want := []proto.Message{&controlv1.DisableUserRequest{Issuer: "corp", Subject: subject}}
	if diff := cmp.Diff(want, *asked, protocmp.Transform()); diff != "" {
		t.Error("the requests differ (-want +got):\n" + diff)
	}
	asked = f.watch("RollbackApplication")
	answerOf(f.page(), request(http.MethodPost, "/actions/rollback", "about=application%3D0000search-id%26deployment%3Dd-named&deployment=d-chosen"))
	if len(*asked) != 1 || (*asked)[0].(*controlv1.RollbackApplicationRequest).DeploymentId != "d-chosen" {
		t.Errorf("what was chosen in the form does not count: %v", *asked)
	}
	if resp := answerOf(f.page(), request(http.MethodPost, "/actions/disable-user", "about=%25zz")); resp.StatusCode != http.StatusBadRequest {
		t.Error("a form that cannot be read:", resp.Status)
	}
}
