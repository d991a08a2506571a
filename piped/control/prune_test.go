package control_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestConfirmPruneAgain: of several failures the newest is confirmed, with all that it would
// have deleted; a failure for another reason cannot be confirmed.
func TestConfirmPruneAgain(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadWrite)
	app := agent.Application("web", nil)
	refuse := func(id string, names ...string) {
		agent.Deployment(id, app, "")
		agent.Move(id, deploy.Running, "")
		var refs []deploy.ObjectRef
		for _, name := range names {
			refs = append(refs, deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name})
		}
		if refs != nil {
			agent.RefusePrune(id, refs...)
		}
	}
	refuse("first", "one", "two")
	agent.Move("first", deploy.Failure, "too much")
	refuse("second", "one", "two", "three")
	_, err := client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "wait for its end") {
		t.Errorf("before the second has ended: %v", err)
	}
	agent.Move("second", deploy.Failure, "too much")
	_, err = client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID, DeploymentId: "first"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "second") {
		t.Errorf("of the first: %v", err)
	}
	for _, dry := range []bool{true, false} {
		got, err := client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID, DryRun: dry})
		if err != nil || len(got.GetObjects()) != 3 || (got.GetCommandId() == "") != dry {
			t.Errorf("dry run %v: %v, %v", dry, got, err)
		}
	}
	if c := agent.OpenCommand(); c.DeploymentID != "second" || fmt.Sprint(c.PermitPrune) != "[ConfigMap shop/one ConfigMap shop/two ConfigMap shop/three]" {
		t.Errorf("permitted: %+v", c)
	}
	refuse("third")
	agent.Move("third", deploy.Failure, "the image is not there")
	_, err = client.ConfirmPrune(ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.ID})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "did not fail because it would delete too much") {
		t.Errorf("after a failure for another reason: %v", err)
	}
}
