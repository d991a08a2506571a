package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestPlanPreviewAPI: a request for a configured repository and base branch makes one
// command; its result is NotFound until there is one, then complete.
func TestPlanPreviewAPI(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadWrite)
	request := func(remote, base string) []string {
		t.Helper()
		resp, err := client.RequestPlanPreview(ctx, &apiservice.RequestPlanPreviewRequest{
			RepoRemoteUrl: remote, HeadBranch: "pr", HeadCommit: "beef", BaseBranch: base, Timeout: 90,
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Commands
	}
	results := func(wait int64, commands ...string) ([]*modelv1.PlanPreviewCommandResult, error) {
		resp, err := client.GetPlanPreviewResults(ctx, &apiservice.GetPlanPreviewResultsRequest{Commands: commands, CommandHandleTimeout: wait})
		return resp.GetResults(), err
	}
	wantCode := func(what string, err error, code codes.Code, text string) {
		t.Helper()
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
			t.Errorf("%s: %v, want %s and %q", what, err, code, text)
		}
	}
	const remote = "https://git.example.com/apps.git"
	for _, other := range [][2]string{{"git@git.example.com:apps.git", "main"}, {remote + "/", "main"}, {remote, "develop"}} {
		if got := request(other[0], other[1]); got != nil {
			t.Errorf("%v: commands %q", other, got)
		}
	}
	ids := request(remote, "main")
	if len(ids) != 1 {
		t.Fatalf("commands: %q", ids)
	}
	c, err := client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: ids[0]})
	want := &modelv1.Command_BuildPlanPreview{RepositoryId: "apps", HeadBranch: "pr", HeadCommit: "beef", BaseBranch: "main", Timeout: 90}
	if diff := cmp.Diff(want, c.GetCommand().GetBuildPlanPreview(), protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v; the command (-want +got):\n%s", err, diff)
	}
	if c.GetCommand().GetCommander() != "owner" || c.GetCommand().GetType() != modelv1.Command_BUILD_PLAN_PREVIEW {
		t.Errorf("the command: %v", c)
	}

	_, err = results(0, ids[0])
	wantCode("open", err, codes.NotFound, "Waiting for result of command "+ids[0]+" from piped "+controltest.PipedID)
	agent.Tick(31 * time.Second)
	late, err := results(30, ids[0])
	if err != nil || len(late) != 1 || !strings.HasPrefix(late[0].Error, "Timed out") || late[0].CommandId != ids[0] {
		t.Errorf("without time left: %v, %v", late, err)
	}
	at := controltest.Epoch.Add(time.Minute)
	err = agent.Store.AnswerPlanPreview(t.Context(), deploy.PlanPreview{CommandID: ids[0], At: at, Results: []deploy.ApplicationPreview{{
		ApplicationID: "app-web", Name: "web", Kind: deploy.KindKubernetes, Dir: "apps/web", Labels: map[string]string{"env": "dev"}, HeadBranch: "pr", HeadCommit: "beef",
		Strategy: deploy.StrategyPipeline, Summary: "1 added", Details: "+ \xff", NoChange: true, Error: "why", At: at,
	}}}, deploy.CommandSucceeded)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := results(0, ids[0])
	wanted := []*modelv1.PlanPreviewCommandResult{{CommandId: ids[0], PipedId: controltest.PipedID, PipedName: "the agent", Results: []*modelv1.ApplicationPlanPreviewResult{{
		ApplicationId: "app-web", ApplicationName: "web", ApplicationKind: modelv1.ApplicationKind_KUBERNETES, ApplicationDirectory: "apps/web",
		PipedId: controltest.PipedID, ProjectId: controltest.ProjectID, Labels: map[string]string{"env": "dev"}, HeadBranch: "pr", HeadCommit: "beef",
		SyncStrategy: modelv1.SyncStrategy_PIPELINE, PlanSummary: []byte("1 added"), PlanDetails: []byte("+ \uFFFD"), NoChange: true, Error: "why", CreatedAt: at.Unix(),
	}}}}
	if diff := cmp.Diff(wanted, shown, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v; shown (-want +got):\n%s", err, diff)
	}

	other := request(remote, "main")[0]
	_, err = results(0, ids[0], other)
	wantCode("one of two is open", err, codes.NotFound, other)
	if err := agent.Store.AnswerPlanPreview(t.Context(), deploy.PlanPreview{CommandID: other, Error: "conflicts", At: at}, deploy.CommandFailed); err != nil {
		t.Fatal(err)
	}
	both, err := results(0, other, ids[0])
	if err != nil || len(both) != 2 || both[0].Error != "conflicts" || both[1].Error != "" {
		t.Errorf("both: %v, %v", both, err)
	}
	app := agent.Application("web", nil)
	sync, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: app.ID})
	if err != nil {
		t.Fatal(err)
	}
	_, err = results(0, sync.CommandId)
	wantCode("another command", err, codes.FailedPrecondition, "is not a plan preview")
	_, err = results(0, "nobody")
	wantCode("no command", err, codes.FailedPrecondition, "request one")

	var large []string
	for range 2 {
		id := request(remote, "main")[0]
		err := agent.Store.AnswerPlanPreview(t.Context(), deploy.PlanPreview{CommandID: id, At: at, Results: []deploy.ApplicationPreview{{Details: strings.Repeat("x", 2<<20)}}}, deploy.CommandSucceeded)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := results(0, id); err != nil {
			t.Errorf("one large one: %v", err)
		}
		large = append(large, id)
	}
	_, err = results(0, large...)
	wantCode("two large ones", err, codes.FailedPrecondition, "one of them at a time")

	agent.Tick(25 * time.Hour)
	_, err = results(0, ids[0])
	wantCode("old", err, codes.FailedPrecondition, "older than 24h")
	if _, err := client.DisablePiped(ctx, &apiservice.DisablePipedRequest{PipedId: controltest.PipedID}); err != nil {
		t.Fatal(err)
	}
	if got := request(remote, "main"); got != nil {
		t.Errorf("of a disabled agent: %q", got)
	}
}
