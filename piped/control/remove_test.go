package control_test

import (
	"context"
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
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// remover is a Remover with a fixed result.
type remover struct {
	objects []deploy.InventoryItem
	err     error
}

func (r *remover) Removals(context.Context, deploy.Application) ([]deploy.InventoryItem, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.objects, nil
}

func item(app deploy.Application, name string) deploy.InventoryItem {
	return deploy.InventoryItem{ApplicationID: app.ID, Cluster: "dev", UID: "u", Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: name}}
}

// TestDeleteApplicationOfControlService: a dry run changes nothing, a deletion is one command,
// and an impossible one is rejected at once.
func TestDeleteApplicationOfControlService(t *testing.T) {
	r := &remover{}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Remover = r })
	conn := dial(t, agent.Server.Addr())
	client, api, ctx := controlv1.NewControlServiceClient(conn), apiservice.NewAPIServiceClient(conn), as(t, agent.ReadWrite)
	app := agent.Application("web", nil)
	r.objects = []deploy.InventoryItem{item(app, "one"), item(app, "two")}
	if err := agent.Store.PutInventory(t.Context(), r.objects...); err != nil {
		t.Fatal(err)
	}
	objects := []*modelv1.ObjectRef{
		{Cluster: "dev", Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "one"}, {Cluster: "dev", Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "two"},
	}
	request := func(cascade, dry bool) (*controlv1.DeleteApplicationResponse, error) {
		agent.Tick(time.Second)
		return client.DeleteApplication(ctx, &controlv1.DeleteApplicationRequest{ApplicationId: app.ID, Cascade: cascade, DryRun: dry})
	}
	refused := func(what string, err error, code codes.Code, says string) {
		t.Helper()
		if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
			t.Errorf("%s: got %v, want %s with %q", what, err, code, says)
		}
	}
	shown := func(what string, got *controlv1.DeleteApplicationResponse, err error, want []*modelv1.ObjectRef) {
		t.Helper()
		if diff := cmp.Diff(want, got.GetObjects(), protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}

	agent.Deployment("runs", app, "")
	agent.Move("runs", deploy.Running, "")
	_, err := request(true, true)
	refused("a dry run while a deployment runs", err, codes.FailedPrecondition, "active")
	_, err = request(true, false)
	refused("while a deployment runs", err, codes.FailedPrecondition, "wait for its end, or cancel it")
	agent.Move("runs", deploy.Success, "")

	got, err := request(true, true)
	shown("a dry run", got, err, objects)
	got, err = request(false, true)
	shown("a dry run without the objects", got, err, nil)
	r.err = deploy.Errorf(deploy.Unavailable, "the cluster is down")
	_, err = request(true, true)
	refused("a dry run of a cluster that is down", err, codes.Unavailable, "the cluster is down")
	r.err = deploy.Errorf(deploy.Invalid, "no such rights")
	_, err = request(true, false)
	refused("without the right to read", err, codes.InvalidArgument, "no such rights")
	if open, err := agent.Store.OpenCommands(t.Context()); err != nil || len(open) > 0 {
		t.Fatalf("commands so far: %v, %v", open, err)
	}

	r.err = nil
	got, err = request(true, false)
	shown("with the objects", got, err, objects)
	command, err := api.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: got.GetCommandId()})
	if err != nil {
		t.Fatal(err)
	}
	c := command.GetCommand()
	if c.GetType() != modelv1.Command_DELETE_APPLICATION || c.GetStatus() != modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET || c.GetCommander() != "owner" ||
		!c.GetDeleteApplication().GetCascade() || c.GetDeleteApplication().GetApplicationId() != app.ID || c.GetMetadata()["AppliedObjects"] != "2" {
		t.Errorf("the command is %v", c)
	}
	_, err = request(true, false)
	refused("once more while it is open", err, codes.FailedPrecondition, got.GetCommandId())
	_, err = request(false, false)
	refused("what is deleted", err, codes.NotFound, "is deleted")

	// An unreachable cluster delays the deletion but does not reject the request.
	if err := agent.Store.FinishRemoval(t.Context(), agent.OpenCommand(), deploy.CommandFailed, nil, nil); err != nil {
		t.Fatal(err)
	}
	r.err = deploy.Errorf(deploy.Unavailable, "the cluster is down")
	got, err = request(true, false)
	shown("the rest, while the cluster is down", got, err, nil)
	if open := agent.OpenCommand(); open.ID != got.GetCommandId() {
		t.Errorf("open is %+v", open)
	}

	other := agent.Application("other", nil)
	plain, err := client.DeleteApplication(ctx, &controlv1.DeleteApplicationRequest{ApplicationId: other.ID})
	if err != nil {
		t.Fatal(err)
	}
	if command, err := api.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: plain.GetCommandId()}); err != nil || command.GetCommand().GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("the command without objects is %v, %v", command, err)
	}
	_, err = client.DeleteApplication(ctx, &controlv1.DeleteApplicationRequest{ApplicationId: "nobody", Cascade: true})
	refused("an unknown one", err, codes.NotFound, "nobody")
	_, err = client.DeleteApplication(ctx, &controlv1.DeleteApplicationRequest{})
	refused("none", err, codes.InvalidArgument, "ApplicationId")
}

// TestAdoptions: pending decisions are listed, and a decision is one command.
func TestAdoptions(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadWrite)
	web, db := agent.Application("web", nil), agent.Application("db", nil)
	for _, app := range []deploy.Application{web, db} {
		agent.Tick(time.Second)
		if _, err := agent.Store.SetAdoption(t.Context(), deploy.Adoption{ApplicationID: app.ID, Token: "t-" + app.Name, RunningCommit: "c1", Objects: []deploy.AdoptedObject{{
			Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: app.Name}, Managers: []string{"helm", "kubectl"}, OwnerApplicationID: "o", Changes: true,
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(app string) (got []*controlv1.Adoption) {
		t.Helper()
		resp, err := client.ListAdoptions(as(t, agent.ReadOnly), &controlv1.ListAdoptionsRequest{ApplicationId: app})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetAdoptions()
	}
	if got := list(""); len(got) != 2 || got[0].GetApplicationId() != web.ID || got[1].GetApplicationId() != db.ID {
		t.Errorf("listed: %v", got)
	}
	got := list(db.ID)
	want := []*controlv1.Adoption{{
		ApplicationId: db.ID, ApplicationName: "db", RunningCommit: "c1", Token: "t-db", SinceMs: got[0].GetSinceMs(),
		Objects: []*controlv1.AdoptedObject{{
			Object:   &modelv1.ObjectRef{Cluster: "dev", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "db"},
			Managers: []string{"helm", "kubectl"}, OwnerApplicationId: "o", Changes: true,
		}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || got[0].GetSinceMs() == 0 {
		t.Errorf("listed since %d (-want +got):\n%s", got[0].GetSinceMs(), diff)
	}

	for name, c := range map[string]struct {
		req  *controlv1.DecideAdoptionRequest
		code codes.Code
		says string
	}{
		"on another list":        {&controlv1.DecideAdoptionRequest{ApplicationId: db.ID, Token: "t-web"}, codes.FailedPrecondition, "has changed since it was listed"},
		"of an unknown one":      {&controlv1.DecideAdoptionRequest{ApplicationId: "nobody", Token: "t"}, codes.NotFound, "nobody"},
		"without a token":        {&controlv1.DecideAdoptionRequest{ApplicationId: db.ID}, codes.InvalidArgument, "Token"},
		"without an application": {&controlv1.DecideAdoptionRequest{Token: "t"}, codes.InvalidArgument, "ApplicationId"},
	} {
		if _, err := client.DecideAdoption(ctx, c.req); status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.says) {
			t.Errorf("a decision %s: %v, want %s with %q", name, err, c.code, c.says)
		}
	}
	decided, err := client.DecideAdoption(ctx, &controlv1.DecideAdoptionRequest{ApplicationId: db.ID, Accept: true, Token: "t-db"})
	if err != nil {
		t.Fatal(err)
	}
	open := agent.OpenCommand()
	if open.ID != decided.GetCommandId() || open.Type != deploy.CommandDecideAdoption || !open.Accept || open.Token != "t-db" || open.Commander != "owner" {
		t.Errorf("asked for %+v", open)
	}
	if err := agent.Store.DecideAdoption(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	if got := list(db.ID); len(got) != 0 {
		t.Errorf("still listed: %v", got)
	}
	if _, err := client.DecideAdoption(ctx, &controlv1.DecideAdoptionRequest{ApplicationId: db.ID, Token: "t-db"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second decision: %v", err)
	}
	if err := agent.Store.DeleteApplication(t.Context(), web.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DecideAdoption(ctx, &controlv1.DecideAdoptionRequest{ApplicationId: web.ID, Token: "t-web"}); status.Code(err) != codes.NotFound {
		t.Errorf("a decision on a deleted application: %v", err)
	}
}
