package control_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// shownTwice returns the response of GetApplication after comparing its last deployment with
// that of ListApplications.
func shownTwice(t *testing.T, agent *controltest.Agent, id string) *modelv1.Application {
	t.Helper()
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	got, err := client.GetApplication(as(t, agent.ReadOnly), &apiservice.GetApplicationRequest{ApplicationId: id})
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ListApplications(as(t, agent.ReadOnly), &apiservice.ListApplicationsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Applications {
		if diff := cmp.Diff(got.Application.LastDeployment, a.LastDeployment, protocmp.Transform()); a.Id == id && diff != "" {
			t.Errorf("last deployment (-get +list):\n%s", diff)
		}
	}
	return got.Application
}

// TestLastDeploymentOfAnApplication: an application shows the state of its last deployment,
// what it waits for, and the reason of a failure from the start of its rollback on.
func TestLastDeploymentOfAnApplication(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	if got := shownTwice(t, agent, app.ID); got.LastDeployment != nil || got.LastFailure != nil {
		t.Errorf("before the first deployment: %v, %v", got.LastDeployment, got.LastFailure)
	}
	at := func(seconds int64) int64 { return controltest.Epoch.UnixMilli() + seconds*1000 }
	want := &modelv1.ApplicationDeployment{
		DeploymentId: "d1", StatusReason: "A new commit", Commit: "0123456789abcdef0123456789abcdef01234567", CreatedAtMs: at(2),
		Wait: &modelv1.DeploymentWait{WaitsFor: "A new commit", SinceMs: at(2)},
	}
	expect := func(when string, failure *modelv1.ApplicationDeployment) {
		t.Helper()
		got := shownTwice(t, agent, app.ID)
		if diff := cmp.Diff(want, got.LastDeployment, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(failure, got.LastFailure, protocmp.Transform()); diff != "" {
			t.Errorf("%s, the failure (-want +got):\n%s", when, diff)
		}
	}
	agent.Deployment("d1", app, "")
	expect("pending", nil)

	agent.Move("d1", deploy.Planned, "")
	want.Status, want.StatusReason = modelv1.DeploymentStatus_DEPLOYMENT_PLANNED, "The deployment is planned and waits for a free slot"
	want.Wait = &modelv1.DeploymentWait{WaitsFor: "a free slot", SinceMs: at(3)}
	expect("planned", nil)

	agent.Move("d1", deploy.Running, "")
	agent.Log("d1", controltest.SyncStage, "applied 3 objects", "waiting for Deployment shop/web: 1 of 3 pods are new\nmore")
	want.Status, want.StatusReason = modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, "The deployment is running"
	want.Wait = &modelv1.DeploymentWait{WaitsFor: "stage K8S_SYNC: waiting for Deployment shop/web: 1 of 3 pods are new", SinceMs: at(4), StageId: controltest.SyncStage}
	expect("running", nil)

	agent.Move("d1", deploy.RollingBack, "web-1: ImagePullBackOff")
	want.Status, want.StatusReason, want.Wait = modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK, "web-1: ImagePullBackOff", nil
	expect("when it begins to roll back", want)

	agent.Move("d1", deploy.Failure, "web-1: ImagePullBackOff")
	want.Status, want.CompletedAtMs = modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, at(6)
	expect("when it has failed", want)

	failed := want
	agent.Deployment("d2", app, "")
	agent.Move("d2", deploy.Success, "done")
	want = &modelv1.ApplicationDeployment{
		DeploymentId: "d2", Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, StatusReason: "done", Commit: failed.Commit, CreatedAtMs: at(7), CompletedAtMs: at(10),
	}
	expect("after a success", failed)
}

// TestWaitForApproval: a deployment that waits for approval shows the number of approvals and
// since when it waits: itself, in its application, and in the agent's status. So does one
// that waits for it.
func TestWaitForApproval(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	agent.Deployment("d1", app, "")
	change := func(fn func(*deploy.Deployment, time.Time) error) {
		t.Helper()
		agent.Tick(time.Second)
		_, err := agent.Store.UpdateDeployment(t.Context(), "d1", func(d *deploy.Deployment) error { return fn(d, controltest.Epoch.Add(22*time.Second)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(d *deploy.Deployment, now time.Time) error {
		options := json.RawMessage(`{"approvers": ["joe", "jane"], "minApproverNum": 2}`)
		return d.Plan(deploy.Plan{Strategy: deploy.StrategyPipeline, Stages: []deploy.Stage{{ID: "ok", Name: deploy.StageWaitApproval, Options: options}}}, now)
	})
	change(func(d *deploy.Deployment, now time.Time) error { return d.Start(now) })
	change(func(d *deploy.Deployment, now time.Time) error { return d.StartStage("ok", now) })
	want := &modelv1.DeploymentWait{WaitsFor: "2 approvals of joe, jane", SinceMs: controltest.Epoch.UnixMilli() + 22000, StageId: "ok", Approval: true}
	expect := func(when string) {
		t.Helper()
		client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
		d, err := client.GetDeployment(as(t, agent.ReadOnly), &apiservice.GetDeploymentRequest{DeploymentId: "d1"})
		if err != nil {
			t.Fatal(err)
		}
		state, err := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())).GetStatus(as(t, agent.ReadOnly), &controlv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for place, got := range map[string]*modelv1.DeploymentWait{"deployment": d.Deployment.Wait, "application": shownTwice(t, agent, app.ID).LastDeployment.Wait} {
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", when, place, diff)
			}
		}
		waiting := []*controlv1.WaitingDeployment{{DeploymentId: "d1", ApplicationId: app.ID, ApplicationName: "web", Wait: want}}
		if diff := cmp.Diff(waiting, state.Approvals, protocmp.Transform()); diff != "" {
			t.Errorf("%s, status (-want +got):\n%s", when, diff)
		}
	}
	expect("before anyone has approved")
	change(func(d *deploy.Deployment, _ time.Time) error {
		d.Stage("ok").Metadata = map[string]string{deploy.MetaApprovalRecord: `{"approvals": [{"by": "joe", "command": "c"}]}`}
		return nil
	})
	want.WaitsFor = "1 approval of jane"
	expect("after the first approval")

	agent.Deployment("d2", app, "")
	got := shownTwice(t, agent, app.ID).LastDeployment
	if got.DeploymentId != "d2" || got.Wait.WaitsFor != "the deployment of commit 0123456, which waits for 1 approval of jane" || got.Wait.Approval {
		t.Errorf("a deployment behind it waits for %v", got)
	}
}
