package control_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestRejectStage: a stage that waits for approval shows its approvers and the required
// number. A rejection names that stage and keeps its reason, in the store and on the wire.
func TestRejectStage(t *testing.T) {
	ctx, api, agent := api(t)
	agent.Deployment("d1", agent.Application("web", nil), "")
	_, err := agent.Store.UpdateDeployment(t.Context(), "d1", func(d *deploy.Deployment) error {
		stages := []deploy.Stage{{
			ID: "gate", Name: deploy.StageWaitApproval, Visible: true,
			Options: json.RawMessage(`{"approvers":["owner","ada"],"minApproverNum":2}`),
		}}
		return d.Plan(deploy.Plan{Summary: "A pipeline", Stages: stages}, controltest.Epoch)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.Store.UpdateDeployment(t.Context(), "d1", func(d *deploy.Deployment) error {
		if err := d.Start(controltest.Epoch); err != nil {
			return err
		}
		return d.StartStage("gate", controltest.Epoch)
	})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := api.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	waiting := shown.Deployment.Stages[0]
	if waiting.AvailableOperation != modelv1.ManualOperation_MANUAL_OPERATION_APPROVE || waiting.RequiredApprovals != 2 ||
		!slices.Equal(waiting.AuthorizedOperators, []string{"owner", "ada"}) {
		t.Errorf("the waiting stage is %v", waiting)
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	resp, err := client.RejectStage(ctx, &controlv1.RejectStageRequest{DeploymentId: "d1", Reason: "not today"})
	if err != nil {
		t.Fatal(err)
	}
	if c := agent.OpenCommand(); c.ID != resp.CommandId || c.Type != deploy.CommandRejectStage || c.StageID != "gate" || c.Reason != "not today" || c.Commander != "owner" {
		t.Errorf("the stored command is %+v", c)
	}
	got, err := api.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: resp.CommandId})
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Command; c.Type != modelv1.Command_REJECT_STAGE || c.RejectStage.GetStageId() != "gate" || c.RejectStage.GetReason() != "not today" {
		t.Errorf("the command on the wire is %v", c)
	}
}
