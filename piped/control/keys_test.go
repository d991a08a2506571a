package control_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestKeysGrantNoMoreThanTheirCreator: a caller who may manage keys neither makes one that
// permits more, nor disables one.
func TestKeysGrantNoMoreThanTheirCreator(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy = access.NewPolicy([]access.Role{
			{Name: "lead", Permissions: []deploy.Permission{deploy.PermView, deploy.PermViewLogs, deploy.PermKeys}},
			{Name: "voter", Permissions: []deploy.Permission{deploy.PermView, deploy.PermViewLogs, deploy.PermApprove, deploy.PermKeys}},
		})
	})
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	lead := as(t, agent.LimitedKey("lead", nil))
	for role, want := range map[string]codes.Code{
		"viewer": codes.OK, "lead": codes.OK, "deployer": codes.PermissionDenied, "admin": codes.PermissionDenied, "READ_WRITE": codes.PermissionDenied,
		"boss": codes.InvalidArgument,
	} {
		made, err := client.CreateAPIKey(lead, &controlv1.CreateAPIKeyRequest{Name: "a " + role, RoleName: role, Applications: &modelv1.ApplicationSelector{Names: []string{"web*"}}})
		if status.Code(err) != want {
			t.Errorf("a lead makes a key with role %s: %v, want %s", role, err, want)
		}
		if err == nil && (made.ApiKey.RoleName != role || made.ApiKey.Applications.GetNames()[0] != "web*") {
			t.Errorf("the key is %v", made.ApiKey)
		}
	}
	voter := as(t, agent.LimitedKey("voter", nil))
	if _, err := client.CreateAPIKey(voter, &controlv1.CreateAPIKeyRequest{Name: "alice", RoleName: "approver"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("who may not administer makes an approver of any name: %v", err)
	}
	owner, _ := access.IDOf(agent.ReadWrite)
	if _, err := client.DisableAPIKey(lead, &controlv1.DisableAPIKeyRequest{Id: owner}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a lead disables the owner's key: %v", err)
	}
	reader, _ := access.IDOf(agent.LimitedKey("viewer", nil))
	if _, err := client.DisableAPIKey(lead, &controlv1.DisableAPIKeyRequest{Id: reader}); err != nil {
		t.Errorf("a lead disables a viewer's key: %v", err)
	}
}

// TestHiddenTakesAsLongAsUnknown: NOT_FOUND comes on a grid of 10 ms. What happens between two
// of its points does not show.
func TestHiddenTakesAsLongAsUnknown(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	agent.Deployment("d1", app, "")
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.LimitedKey("viewer", &deploy.Selector{Names: []string{"search"}}))
	for _, id := range []string{"d1", "unknown"} {
		start := time.Now()
		_, err := client.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
		if took := time.Since(start); status.Code(err) != codes.NotFound || took < 9*time.Millisecond {
			t.Errorf("%s: %v after %s, want NotFound after 10 ms or more", id, err, took)
		}
	}
}
