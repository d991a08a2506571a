package control_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestRetryDeployment: an ended deployment is requested again unchanged, whatever its result;
// one that has not ended or whose application cannot be deployed is rejected.
func TestRetryDeployment(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadWrite)
	app := agent.Application("web", nil)
	agent.Deployment("failed", app, "")
	agent.Move("failed", deploy.Failure, "web-1: ImagePullBackOff")
	agent.Deployment("waits", app, "")

	refused := func(what, id string, code codes.Code, says string) {
		t.Helper()
		_, err := client.RetryDeployment(ctx, &controlv1.RetryDeploymentRequest{DeploymentId: id})
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
			t.Errorf("%s: got %v, want %s with %q", what, err, code, says)
		}
	}
	refused("nothing", "", codes.InvalidArgument, "DeploymentId")
	refused("an unknown one", "other", codes.NotFound, "other")
	refused("one that has not ended", "waits", codes.FailedPrecondition, "wait for its end, or cancel it first")

	resp, err := client.RetryDeployment(ctx, &controlv1.RetryDeploymentRequest{DeploymentId: "failed"})
	if err != nil {
		t.Fatal(err)
	}
	c := agent.OpenCommand()
	if c.ID != resp.CommandId || c.Type != deploy.CommandRetry || c.ApplicationID != app.ID || c.DeploymentID != "failed" || c.Commander != "owner" ||
		c.Commit != "0123456789abcdef0123456789abcdef01234567" || c.Strategy != deploy.StrategyQuickSync || len(c.PermitPrune) > 0 {
		t.Errorf("stored %+v", c)
	}
	if err := agent.Store.SetDisabled(t.Context(), app.ID, true); err != nil {
		t.Fatal(err)
	}
	refused("one of a disabled application", "failed", codes.FailedPrecondition, "enable it first")
}
