package control_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func TestEnableApplicationOfControlService(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadWrite)
	app := agent.Application("web", nil)
	if err := agent.Store.SetDisabled(t.Context(), app.ID, true); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second has no effect
		if _, err := client.EnableApplication(ctx, &controlv1.EnableApplicationRequest{ApplicationId: app.ID}); err != nil {
			t.Fatal(err)
		}
		if got, err := agent.Store.Application(t.Context(), app.ID); err != nil || got.Disabled {
			t.Errorf("stored: disabled %t, %v", got.Disabled, err)
		}
	}
	gone := agent.Application("gone", nil)
	if err := agent.Store.DeleteApplication(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	for id, code := range map[string]codes.Code{"": codes.InvalidArgument, "other": codes.NotFound, gone.ID: codes.NotFound} {
		if _, err := client.EnableApplication(ctx, &controlv1.EnableApplicationRequest{ApplicationId: id}); status.Code(err) != code {
			t.Errorf("of %q: %v, want %s", id, err, code)
		}
	}
}
