package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func TestSyncApplication(t *testing.T) {
	ctx, client, agent := api(t)
	app := agent.Application("web", nil)
	sync, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: app.ID})
	if err != nil {
		t.Fatal(err)
	}
	get := func() *modelv1.Command {
		t.Helper()
		resp, err := client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: sync.CommandId})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Command
	}
	want := &modelv1.Command{
		Id: sync.CommandId, PipedId: controltest.PipedID, ProjectId: controltest.ProjectID, ApplicationId: app.ID, Commander: "owner",
		SyncApplication: &modelv1.Command_SyncApplication{ApplicationId: app.ID},
		CreatedAt:       controltest.Epoch.Unix() + 1, UpdatedAt: controltest.Epoch.Unix() + 1,
	}
	if diff := cmp.Diff(want, get(), protocmp.Transform()); diff != "" {
		t.Errorf("the command right after the sync (-want +got):\n%s", diff)
	}
	agent.Deployment("d1", app, sync.CommandId)
	got := get()
	if got.Status != modelv1.CommandStatus_COMMAND_SUCCEEDED || got.Metadata["TriggeredDeploymentID"] != "d1" || got.HandledAt == 0 {
		t.Errorf("the command once its deployment is there: %v", got)
	}
}

func TestSyncOfDisabledApplicationIsLeftToTheTrigger(t *testing.T) {
	ctx, client, agent := api(t)
	app := agent.Application("web", nil)
	if err := agent.Store.SetDisabled(t.Context(), app.ID, true); err != nil {
		t.Fatal(err)
	}
	sync, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: app.ID})
	if err != nil {
		t.Fatal(err)
	}
	if open := agent.OpenCommand(); open.ID != sync.CommandId {
		t.Errorf("the open command is %s, want %s", open.ID, sync.CommandId)
	}
}

func TestGetDeploymentHasEveryTransition(t *testing.T) {
	ctx, client, agent := api(t)
	agent.Deployment("d1", agent.Application("web", map[string]string{"env": "prod"}), "")
	agent.Move("d1", deploy.Failure, "web-1: ImagePullBackOff")
	resp, err := client.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	d := resp.Deployment
	var moves []string
	for _, m := range d.Transitions {
		moves = append(moves, m.StageId+":"+m.From+">"+m.To)
	}
	want := []string{
		":>DEPLOYMENT_PENDING",
		":DEPLOYMENT_PENDING>DEPLOYMENT_PLANNED",
		controltest.SyncStage + ":>STAGE_NOT_STARTED_YET", controltest.RollbackStage + ":>STAGE_NOT_STARTED_YET",
		":DEPLOYMENT_PLANNED>DEPLOYMENT_RUNNING",
		controltest.SyncStage + ":STAGE_NOT_STARTED_YET>STAGE_RUNNING",
		":DEPLOYMENT_RUNNING>DEPLOYMENT_ROLLING_BACK",
		controltest.SyncStage + ":STAGE_RUNNING>STAGE_FAILURE",
		":DEPLOYMENT_ROLLING_BACK>DEPLOYMENT_FAILURE",
	}
	if diff := cmp.Diff(want, moves); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
	started := controltest.Epoch.UnixMilli() + 4000
	if d.Status != modelv1.DeploymentStatus_DEPLOYMENT_FAILURE || d.StatusReason != "web-1: ImagePullBackOff" || d.StartedAtMs != started ||
		d.TriggerKind != modelv1.TriggerKind_TRIGGER_KIND_ON_COMMIT || len(d.Stages) != 2 || d.Labels["env"] != "prod" {
		t.Errorf("the deployment is %v", d)
	}
}

func TestListStageLogs(t *testing.T) {
	ctx, client, agent := api(t)
	app := agent.Application("web", nil)
	agent.Deployment("d1", app, "")
	agent.Move("d1", deploy.Running, "")
	logs := func() map[string]*apiservice.StageLog {
		t.Helper()
		resp, err := client.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: "d1"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.StageLogs
	}
	want := map[string]*apiservice.StageLog{controltest.SyncStage: {}}
	if diff := cmp.Diff(want, logs(), protocmp.Transform()); diff != "" {
		t.Errorf("before the first line (-want +got):\n%s", diff)
	}
	agent.Log("d1", controltest.SyncStage, "applying", "bad \xff\xfe bytes")
	at := controltest.Epoch.Unix() + 4
	block := func(i int64, log string) *modelv1.LogBlock {
		return &modelv1.LogBlock{Index: i, Log: log, CreatedAt: at, CreatedAtMs: at * 1000}
	}
	want[controltest.SyncStage].Blocks = []*modelv1.LogBlock{block(0, "applying"), block(1, "bad \uFFFD bytes")}
	if diff := cmp.Diff(want, logs(), protocmp.Transform()); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	agent.Log("d1", controltest.RollbackStage, "rolled back")
	agent.Move("d1", deploy.Failure, "failed")
	want[controltest.SyncStage].Completed = true
	want[controltest.RollbackStage] = &apiservice.StageLog{Blocks: []*modelv1.LogBlock{block(0, "rolled back")}}
	if diff := cmp.Diff(want, logs(), protocmp.Transform()); diff != "" {
		t.Errorf("after the stage's end (-want +got):\n%s", diff)
	}
}

// TestLargeLogsAreCutFromTheOldest: a log that is too large for a client keeps its newest
// blocks and mentions the omitted ones.
func TestLargeLogsAreCutFromTheOldest(t *testing.T) {
	ctx, client, agent := api(t)
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Running, "")
	const count = 6000
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d %s", i, strings.Repeat("x", 1000))
	}
	agent.Log("d1", controltest.SyncStage, lines...)
	agent.Log("d1", controltest.RollbackStage, "short")
	resp, err := client.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	if size := proto.Size(resp); size > 4<<20 || size < 1<<20 {
		t.Errorf("the response has %d bytes, want below 4 MiB and most of it used", size)
	}
	blocks := resp.StageLogs[controltest.SyncStage].Blocks
	kept := len(blocks) - 1
	if want := fmt.Sprintf("(%d older log entries are left out", count-kept); !strings.HasPrefix(blocks[0].Log, want) {
		t.Errorf("the first line is %q, want it to begin with %q", blocks[0].Log, want)
	}
	if last := blocks[kept].Log; !strings.HasPrefix(last, fmt.Sprintf("line %d ", count-1)) {
		t.Errorf("the last line is %.20q, want the newest one", last)
	}
	for i := 1; i < len(blocks); i++ {
		if blocks[i].Index != blocks[i-1].Index+1 {
			t.Fatalf("block %d follows block %d: one is missing", blocks[i].Index, blocks[i-1].Index)
		}
	}
	if got := resp.StageLogs[controltest.RollbackStage].Blocks; len(got) != 1 || got[0].Log != "short" {
		t.Errorf("the other stage's log is %v, want it whole", got)
	}
}

func TestRefusals(t *testing.T) {
	ctx, client, agent := api(t)
	deleted := agent.Application("gone", nil)
	if err := agent.Store.DeleteApplication(t.Context(), deleted.ID); err != nil {
		t.Fatal(err)
	}
	many := make([]string, 1001)
	tests := map[string]struct {
		call func(context.Context) error
		code codes.Code
		want string
	}{
		"get application without ID": {func(ctx context.Context) error {
			_, err := client.GetApplication(ctx, &apiservice.GetApplicationRequest{})
			return err
		}, codes.InvalidArgument, "invalid request: invalid GetApplicationRequest.ApplicationId: value length must be at least 1 runes"},
		"sync without ID": {func(ctx context.Context) error {
			_, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{})
			return err
		}, codes.InvalidArgument, "invalid request: invalid SyncApplicationRequest.ApplicationId: value length must be at least 1 runes"},
		"get command without ID": {func(ctx context.Context) error {
			_, err := client.GetCommand(ctx, &apiservice.GetCommandRequest{})
			return err
		}, codes.InvalidArgument, "invalid request: invalid GetCommandRequest.CommandId: value length must be at least 1 runes"},
		"list logs without ID": {func(ctx context.Context) error {
			_, err := client.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{})
			return err
		}, codes.InvalidArgument, "invalid request: invalid ListStageLogsRequest.DeploymentId: value length must be at least 1 runes"},
		"get deployment without ID is no invalid request": {func(ctx context.Context) error {
			_, err := client.GetDeployment(ctx, &apiservice.GetDeploymentRequest{})
			return err
		}, codes.NotFound, "Deployment is not found"},
		"unknown application": {func(ctx context.Context) error {
			_, err := client.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: "x"})
			return err
		}, codes.NotFound, "Application is not found"},
		"sync of an unknown application": {func(ctx context.Context) error {
			_, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: "x"})
			return err
		}, codes.NotFound, "Application is not found"},
		"sync of a deleted application": {func(ctx context.Context) error {
			_, err := client.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: deleted.ID})
			return err
		}, codes.NotFound, "Application is not found"},
		"unknown command": {func(ctx context.Context) error {
			_, err := client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: "x"})
			return err
		}, codes.NotFound, "Command is not found"},
		"logs of an unknown deployment": {func(ctx context.Context) error {
			_, err := client.ListStageLogs(ctx, &apiservice.ListStageLogsRequest{DeploymentId: "x"})
			return err
		}, codes.NotFound, "Deployment is not found"},
		"unknown kind of application": {func(ctx context.Context) error {
			_, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{Kind: "kubernetes"})
			return err
		}, codes.InvalidArgument, "Invalid application kind"},
		"unknown kind of deployment": {func(ctx context.Context) error {
			_, err := client.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Kinds: []string{"KUBERNETES", "X"}})
			return err
		}, codes.InvalidArgument, "X is invalid application kind"},
		"unknown status": {func(ctx context.Context) error {
			_, err := client.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Statuses: []string{"SUCCESS"}})
			return err
		}, codes.InvalidArgument, "SUCCESS is invalid deployment status"},
		"an invalid cursor": {func(ctx context.Context) error {
			_, err := client.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Cursor: "?"})
			return err
		}, codes.InvalidArgument, "the cursor is not one that a list returned: leave it empty to start from the first page"},
		"negative limit": {func(ctx context.Context) error {
			_, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: -1})
			return err
		}, codes.InvalidArgument, "invalid request: invalid ListApplicationsRequest.Limit: value must be greater than or equal to 0"},
		"more applications than a query takes": {func(ctx context.Context) error {
			_, err := client.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{ApplicationIds: many})
			return err
		}, codes.InvalidArgument, "invalid request: invalid ListDeploymentsRequest.ApplicationIds: value must contain no more than 1000 items"},
		"figures of no range": {func(ctx context.Context) error {
			_, err := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())).GetDeliveryFigures(ctx, &controlv1.GetDeliveryFiguresRequest{})
			return err
		}, codes.InvalidArgument, "invalid request: invalid GetDeliveryFiguresRequest.FromMs: value must be greater than 0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.call(ctx)
			if status.Code(err) != tc.code || status.Convert(err).Message() != tc.want {
				t.Errorf("got %v, want %s %q", err, tc.code, tc.want)
			}
		})
	}
	open, err := agent.Store.OpenCommands(t.Context())
	if err != nil || len(open) != 0 {
		t.Errorf("refused calls left the commands %v (%v)", open, err)
	}
}

// TestGetDeletedApplication: a deleted application can still be read by its ID.
func TestGetDeletedApplication(t *testing.T) {
	ctx, client, agent := api(t)
	app := agent.Application("gone", nil)
	if err := agent.Store.DeleteApplication(t.Context(), app.ID); err != nil {
		t.Fatal(err)
	}
	resp, err := client.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: app.ID})
	if err != nil {
		t.Fatal(err)
	}
	if !resp.Application.Deleted || resp.Application.DeletedAt == 0 {
		t.Errorf("deleted %v at %d, want true and when", resp.Application.Deleted, resp.Application.DeletedAt)
	}
}
