package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previews is a Planner that returns its arguments, with one commit that cannot be planned.
type previews struct{}

func (previews) Preview(_ context.Context, app deploy.Application, commit string, s deploy.Strategy, subject string) (deploy.Deployment, string, error) {
	if commit == "bad0000" {
		return deploy.Deployment{}, "", deploy.Errorf(deploy.Invalid, "app.pipecd.yaml, line 3")
	}
	return deploy.Deployment{ApplicationID: app.ID, Summary: subject + " asked for " + commit + " " + string(s)}, "for a test", nil
}

func (previews) Changes(_ context.Context, d deploy.Deployment) (deploy.Effect, error) {
	if d.Summary == "" {
		return deploy.Effect{}, deploy.Errorf(deploy.Invalid, "web.yaml, line 4")
	}
	large := []deploy.PlannedAttribute{{Path: "large", After: strings.Repeat("x", 3<<20)}}
	return deploy.Effect{Summary: "1 to replace", Digest: "0a1b", Note: "for a test", Changes: []deploy.PlannedChange{
		{Object: deploy.ObjectRef{Kind: "ConfigMap", Name: "web"}, Action: deploy.PlannedLeave, Diff: "-a: b\xff\n"},
		{Object: deploy.ObjectRef{Kind: "Secret", Name: "web"}, Action: deploy.PlannedUpdate, Diff: strings.Repeat("+x\n", 1<<20)},
		{Object: deploy.ObjectRef{Kind: "net", Name: "a"}, Action: deploy.PlannedReplace, Diff: "short\n", Address: "net.a", Attributes: large},
		{Object: deploy.ObjectRef{Kind: "net", Name: "b"}, Action: deploy.PlannedForget, Address: "net.b", Attributes: []deploy.PlannedAttribute{
			{Path: "id", Before: "1\xff", After: "(known)", Sensitive: true, Unknown: true, Forces: true},
		}},
	}}, nil
}

// TestRequestsOfControlService: with one ended and one running deployment, each valid
// request becomes exactly one command, and each invalid one is rejected at once.
func TestRequestsOfControlService(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Planner = previews{} })
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadWrite)
	app := agent.Application("web", nil)
	agent.Deployment("done", app, "")
	agent.Move("done", deploy.Success, "")
	agent.Deployment("runs", app, "")
	agent.Move("runs", deploy.Running, "")

	wantCode := func(what string, err error, code codes.Code, says string) {
		t.Helper()
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
			t.Errorf("%s: got %v, want %s with %q", what, err, code, says)
		}
	}
	answered := func(what, id string, err error) deploy.Command {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got := agent.OpenCommand()
		if got.ID != id || got.Commander != "owner" || got.ApplicationID != app.ID {
			t.Errorf("%s: the command is %+v", what, got)
		}
		agent.Tick(time.Second)
		if err := agent.Store.FinishCommand(t.Context(), id, deploy.CommandSucceeded, nil); err != nil {
			t.Fatal(err)
		}
		return got
	}

	sync, err := client.SyncApplication(ctx, &controlv1.SyncApplicationRequest{ApplicationId: app.ID, Strategy: modelv1.SyncStrategy_PIPELINE, Commit: hash})
	if c := answered("sync", sync.GetCommandId(), err); c.Type != deploy.CommandSync || c.Strategy != deploy.StrategyPipeline || c.Commit != hash {
		t.Errorf("sync stored %+v", c)
	}
	for name, req := range map[string]*controlv1.RollbackApplicationRequest{
		"by deployment": {ApplicationId: app.ID, DeploymentId: "done"}, "by commit": {ApplicationId: app.ID, Commit: hash[:7]},
		"for a reason": {ApplicationId: app.ID, Commit: hash[:7], Reason: "the page is broken", WaitForRunning: true},
	} {
		back, err := client.RollbackApplication(ctx, req)
		c := answered("rollback "+name, back.GetCommandId(), err)
		if c.Type != deploy.CommandSync || c.Strategy != deploy.StrategyQuickSync || c.Commit != hash || back.Commit != hash || c.Metadata[deploy.MetaRollbackTo] != "done" {
			t.Errorf("rollback %s stored %+v", name, c)
		}
		if !c.IsRollback() || c.Reason != req.Reason || c.WaitForRunning != req.WaitForRunning {
			t.Errorf("rollback %s stored %+v", name, c)
		}
		if len(back.Open) != 1 || back.Open[0].Id != "runs" || back.Open[0].Status != modelv1.DeploymentStatus_DEPLOYMENT_RUNNING {
			t.Errorf("rollback %s names as open %v", name, back.Open)
		}
	}
	cancel, err := client.CancelDeployment(ctx, &controlv1.CancelDeploymentRequest{DeploymentId: "runs", ForceNoRollback: true})
	if c := answered("cancel", cancel.GetCommandId(), err); c.Type != deploy.CommandCancel || c.DeploymentID != "runs" || !c.ForceNoRollback || c.ForceRollback {
		t.Errorf("cancel stored %+v", c)
	}
	plan, err := client.GetPlan(as(t, agent.ReadOnly), &controlv1.GetPlanRequest{DeploymentId: "runs"})
	if err != nil || plan.Plan.Strategy != modelv1.SyncStrategy_QUICK_SYNC || len(plan.Plan.Stages) != 2 || plan.Plan.Commit != hash {
		t.Errorf("plan: %v, %v", plan, err)
	}

	would, err := client.GetPlan(as(t, agent.ReadOnly), &controlv1.GetPlanRequest{ApplicationId: app.ID, Commit: hash[:7]})
	if err != nil || would.Plan.DeploymentId != "" || would.Plan.HoldReason != "for a test" || would.Plan.Summary != "watcher asked for "+hash[:7]+" AUTO" {
		t.Errorf("plan of what is not made: %v, %v", would, err)
	}
	with, err := client.GetPlan(as(t, agent.ReadOnly), &controlv1.GetPlanRequest{ApplicationId: app.ID, Diff: true})
	if len(would.GetPlan().GetChanges()) != 0 || err != nil {
		t.Errorf("%v; without being asked for: %v", err, would)
	}
	for i, want := range []*controlv1.PlannedChange{
		{Object: &modelv1.ObjectRef{Kind: "ConfigMap", Name: "web"}, Action: controlv1.PlannedAction_PLANNED_ACTION_LEAVE, Diff: "-a: b\uFFFD\n"},
		{Object: &modelv1.ObjectRef{Kind: "Secret", Name: "web"}, Action: controlv1.PlannedAction_PLANNED_ACTION_UPDATE, Diff: "... cut: a diff of 3145728 bytes is not shown\n"},
		{Object: &modelv1.ObjectRef{Kind: "net", Name: "a"}, Action: controlv1.PlannedAction_PLANNED_ACTION_REPLACE, Address: "net.a", Diff: "... cut: a diff of 6 bytes is not shown\n"},
		{Object: &modelv1.ObjectRef{Kind: "net", Name: "b"}, Action: controlv1.PlannedAction_PLANNED_ACTION_FORGET, Address: "net.b", Attributes: []*controlv1.PlannedAttribute{
			{Path: "id", Before: "1\uFFFD", After: "(known)", Sensitive: true, Unknown: true, ForcesReplacement: true},
		}},
	} {
		if diff := cmp.Diff(want, with.GetPlan().GetChanges()[i], protocmp.Transform()); diff != "" {
			t.Errorf("change %d (-want +got):\n%s", i, diff)
		}
	}
	if p := with.GetPlan(); p.GetChangesSummary() != "1 to replace" || p.GetChangesDigest() != "0a1b" || p.GetChangesNote() != "for a test" {
		t.Errorf("the plan is %q, %q, %q", p.GetChangesSummary(), p.GetChangesDigest(), p.GetChangesNote())
	}
	_, err = client.GetPlan(ctx, &controlv1.GetPlanRequest{ApplicationId: app.ID, Commit: "bad0000"})
	wantCode("plan of a commit that cannot be planned", err, codes.FailedPrecondition, "line 3")
	_, err = client.GetPlan(ctx, &controlv1.GetPlanRequest{ApplicationId: app.ID, DeploymentId: "runs"})
	wantCode("plan of both", err, codes.InvalidArgument, "excludes")
	_, err = client.GetPlan(ctx, &controlv1.GetPlanRequest{})
	wantCode("plan of nothing", err, codes.InvalidArgument, "give one of them")

	_, err = client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID})
	wantCode("confirm the prune of one that runs", err, codes.FailedPrecondition, "is RUNNING: wait for its end")
	_, err = client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID, DeploymentId: "done"})
	wantCode("confirm the prune of an older one", err, codes.FailedPrecondition, "is not the newest")
	_, err = client.SyncApplication(ctx, &controlv1.SyncApplicationRequest{ApplicationId: app.ID, Commit: "main"})
	wantCode("sync to a name", err, codes.InvalidArgument, "first 7 digits")
	_, err = client.RollbackApplication(ctx, &controlv1.RollbackApplicationRequest{ApplicationId: app.ID, DeploymentId: "runs"})
	wantCode("rollback to a running one", err, codes.FailedPrecondition, "name one that succeeded")
	_, err = client.RollbackApplication(ctx, &controlv1.RollbackApplicationRequest{ApplicationId: app.ID})
	wantCode("rollback without an earlier success", err, codes.NotFound, "no earlier successful deployment to go back to")
	_, err = client.RollbackApplication(ctx, &controlv1.RollbackApplicationRequest{ApplicationId: app.ID, Commit: "7777777"})
	wantCode("rollback to a commit without a success", err, codes.NotFound, "no successful deployment of commit 7777777: name another")
	_, err = client.CancelDeployment(ctx, &controlv1.CancelDeploymentRequest{DeploymentId: "done"})
	wantCode("cancel of one that has ended", err, codes.FailedPrecondition, "has ended")
	_, err = client.CancelDeployment(ctx, &controlv1.CancelDeploymentRequest{DeploymentId: "runs", ForceRollback: true, ForceNoRollback: true})
	wantCode("cancel with both options", err, codes.InvalidArgument, "exclude each other")
	agent.Deployment("waits", app, "") // pending
	_, err = client.CancelDeployment(ctx, &controlv1.CancelDeploymentRequest{DeploymentId: "waits", ForceRollback: true})
	wantCode("cancel with a rollback that cannot be", err, codes.FailedPrecondition, "nothing to roll back to")
	_, err = client.ApproveStage(ctx, &controlv1.ApproveStageRequest{DeploymentId: "runs"})
	wantCode("approve of nothing", err, codes.FailedPrecondition, "no running WAIT_APPROVAL")
	_, err = client.RejectStage(ctx, &controlv1.RejectStageRequest{DeploymentId: "runs", StageId: "x"})
	wantCode("reject of an unknown stage", err, codes.NotFound, controltest.SyncStage)
	_, err = client.SkipStage(ctx, &controlv1.SkipStageRequest{DeploymentId: "runs", StageId: controltest.SyncStage})
	wantCode("skip of a sync", err, codes.FailedPrecondition, "not a running WAIT")
}

// TestRollbackWithoutTarget: the target is the newest success of another commit, also if the
// last commit was deployed several times.
func TestRollbackWithoutTarget(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	app := agent.Application("web", nil)
	for i, commit := range []string{"a", "b", "c", "c"} {
		agent.Tick(time.Second)
		id := fmt.Sprint(commit, i)
		_, err := agent.Store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
			ID: id, ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Status: deploy.Pending,
			Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: controltest.Epoch, Strategy: deploy.StrategyAuto, Commit: deploy.Commit{Hash: strings.Repeat(commit, 40), Branch: "main", At: controltest.Epoch}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		agent.Move(id, deploy.Success, "")
	}
	back, err := client.RollbackApplication(as(t, agent.ReadWrite), &controlv1.RollbackApplicationRequest{ApplicationId: app.ID})
	if err != nil || back.Commit != strings.Repeat("b", 40) {
		t.Errorf("got %v, %v", back, err)
	}
}

// TestConfirmPrune: a command permits the deletions that a stage was denied and repeats the
// deployment.
func TestConfirmPrune(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadWrite)
	app := agent.Application("web", nil)
	_, err := client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a deployment: %v", err)
	}
	agent.Deployment("refused", app, "")
	agent.Move("refused", deploy.Running, "")
	agent.RefusePrune("refused", deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "one"})
	agent.Move("refused", deploy.Failure, "too much")

	would, err := client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID, DryRun: true})
	if err != nil || would.CommandId != "" || len(would.Objects) != 1 || would.Objects[0].Name != "one" {
		t.Fatalf("dry run: %v, %v", would, err)
	}
	did, err := client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID, DeploymentId: "refused"})
	if err != nil {
		t.Fatal(err)
	}
	c := agent.OpenCommand()
	if c.ID != did.CommandId || c.Type != deploy.CommandRetry || c.DeploymentID != "refused" || c.Commit == "" || len(c.PermitPrune) != 1 || c.PermitPrune[0].Name != "one" {
		t.Errorf("stored %+v", c)
	}
}
