package control_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestForcedRollbackNeedsItsPermission: who may cancel may not therefore roll back.
func TestForcedRollbackNeedsItsPermission(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy = access.NewPolicy([]access.Role{{Name: "canceller", Permissions: []deploy.Permission{deploy.PermView, deploy.PermCancel}}})
	})
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	app := agent.Application("web", nil)
	agent.Deployment("d1", app, "")
	agent.Move("d1", deploy.Running, "it runs")
	for role, want := range map[string]codes.Code{"canceller": codes.PermissionDenied, "deployer": codes.OK} {
		_, err := client.CancelDeployment(as(t, agent.LimitedKey(role, nil)), &controlv1.CancelDeploymentRequest{DeploymentId: "d1", ForceRollback: true})
		if status.Code(err) != want {
			t.Errorf("by a %s: %v, want %s", role, err, want)
		}
	}
}

// TestAuditOfLongIDs: what a caller sends as an ID takes a bounded place in the audit log, and a
// key is not stored there.
func TestAuditOfLongIDs(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadOnly)
	for _, id := range []string{strings.Repeat("x", 1<<20), agent.ReadWrite} {
		if _, err := client.SyncApplication(ctx, &controlv1.SyncApplicationRequest{ApplicationId: id}); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	records, _, err := agent.Store.ListAudit(t.Context(), store.AuditQuery{})
	if err != nil || len(records) != 2 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	_, secret, _ := strings.Cut(agent.ReadWrite, ".")
	for _, r := range records {
		if len(r.ApplicationID) > 300 || len(r.Reason) > 300 || strings.Contains(r.ApplicationID, secret) {
			t.Errorf("stored: %d bytes of an ID, %d of a reason", len(r.ApplicationID), len(r.Reason))
		}
	}
}
