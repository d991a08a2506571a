package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// TestInternalMetadataIsHidden: internal metadata of a stage contains object names, which may
// contain decrypted values, and is not returned.
func TestInternalMetadataIsHidden(t *testing.T) {
	ctx, client, agent := api(t)
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Running, "")
	_, err := agent.Store.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error {
		d.Stage(controltest.SyncStage).Metadata = map[string]string{
			"ApprovedBy": "ann", deploy.MetaCreating: "hunter2", deploy.MetaConfigChanges: "hunter2", deploy.MetaHooks: "hunter2", deploy.MetaPruneRefused: "hunter2", deploy.MetaTraffic: "hunter2",
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"ApprovedBy": "ann"}, resp.Deployment.Stages[0].Metadata); diff != "" {
		t.Errorf("metadata of %s (-want +got):\n%s", resp.Deployment.Stages[0].Id, diff)
	}
}
