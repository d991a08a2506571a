package control_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestCallsInProcess: a call within the process is answered as over gRPC, also without
// credentials, without the permission, and about what does not exist.
func TestCallsInProcess(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", map[string]string{"team": "payments"})
	agent.Deployment("d", app, "")
	hidden := agent.LimitedKey("viewer", &deploy.Selector{Names: []string{"other"}})
	over := dial(t, agent.Server.Addr())
	calls := map[string]struct {
		key  string
		code codes.Code
		call func(context.Context, grpc.ClientConnInterface) (proto.Message, error)
	}{
		"a read":              {agent.ReadOnly, codes.OK, getDeployment},
		"no credentials":      {"", codes.Unauthenticated, getDeployment},
		"a wrong key":         {agent.ReadOnly + "x", codes.Unauthenticated, getDeployment},
		"a hidden deployment": {hidden, codes.NotFound, getDeployment},
		"a change":            {agent.ReadOnly, codes.PermissionDenied, cancelDeployment},
		"an invalid request":  {agent.ReadOnly, codes.InvalidArgument, searchNothing},
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if c.key != "" {
				ctx = as(t, c.key)
			}
			want, wantErr := c.call(ctx, over)
			got, err := c.call(ctx, agent.Server.Conn())
			if status.Code(err) != c.code || status.Convert(err).Message() != status.Convert(wantErr).Message() {
				t.Fatalf("%v, want %s as over gRPC: %v", err, c.code, wantErr)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); c.code == codes.OK && diff != "" {
				t.Error("compared with gRPC:\n" + diff)
			}
		})
	}
}

func getDeployment(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return apiservice.NewAPIServiceClient(conn).GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: "d"})
}

func searchNothing(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return controlv1.NewControlServiceClient(conn).SearchApplications(ctx, &controlv1.SearchApplicationsRequest{Limit: -1})
}

func cancelDeployment(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	return controlv1.NewControlServiceClient(conn).CancelDeployment(ctx, &controlv1.CancelDeploymentRequest{DeploymentId: "d"})
}

// TestInProcessChangesAreAudited: the audit log names the subject and the address of the client
// for whom the call was made.
func TestInProcessChangesAreAudited(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d", agent.Application("web", nil), "")
	ctx := peer.NewContext(as(t, agent.ReadWrite), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4321}})
	if _, err := cancelDeployment(ctx, agent.Server.Conn()); err != nil {
		t.Fatal(err)
	}
	agent.Restart() // records are written in the background
	records, _, err := agent.Store.ListAudit(t.Context(), store.AuditQuery{Limit: 10})
	if err != nil || len(records) != 1 || records[0].Subject != "owner" || records[0].Remote != "192.0.2.7" || records[0].DeploymentID != "d" {
		t.Errorf("%+v, %v", records, err)
	}
}

// TestStreamsInProcess: a stream delivers each message, and ends when the client's context or
// the server ends.
func TestStreamsInProcess(t *testing.T) {
	const grace = time.Hour // after it the stream would be cancelled, without the reason
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Grace = grace })
	app := agent.Application("web", nil)
	client := controlv1.NewControlServiceClient(agent.Server.Conn())
	if stream, err := client.WatchApplications(t.Context(), &controlv1.WatchApplicationsRequest{}); err != nil {
		t.Fatal(err)
	} else if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Fatalf("without credentials: %v", err)
	}
	ctx, cancel := context.WithCancel(as(t, agent.ReadOnly))
	cancelled, served := watchWeb(ctx, t, client, app), watchWeb(as(t, agent.ReadOnly), t, client, app)
	cancel()
	if _, err := cancelled.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("after the client's end: %v", err)
	}
	agent.Deployment("d", app, "")
	if m, err := served.Recv(); err != nil || m.Application.GetLastDeployment().GetDeploymentId() != "d" {
		t.Errorf("after a change: %v, %v", m, err)
	}
	agent.Restart()
	if _, err := served.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("after the server's end: %v", err)
	}
	if _, err := getDeployment(as(t, agent.ReadOnly), agent.Server.Conn()); err != nil {
		t.Errorf("on the next server: %v", err)
	}
}

// watchWeb returns a stream of applications that has caught up.
func watchWeb(ctx context.Context, t *testing.T, client controlv1.ControlServiceClient, app deploy.Application) grpc.ServerStreamingClient[controlv1.WatchApplicationsResponse] {
	t.Helper()
	stream, err := client.WatchApplications(ctx, &controlv1.WatchApplicationsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.Application.GetId() != app.ID {
		t.Fatal(first, err)
	}
	if second, err := stream.Recv(); err != nil || !second.CaughtUp {
		t.Fatal(second, err)
	}
	return stream
}

// TestMethodsOfAnotherAPIInProcess: an unknown method and a stream of requests are refused.
func TestMethodsOfAnotherAPIInProcess(t *testing.T) {
	conn := controltest.Start(t, t.TempDir()).Server.Conn()
	if err := conn.Invoke(t.Context(), "/other.Service/Get", &controlv1.GetStatusRequest{}, &controlv1.GetStatusResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("unary: %v", err)
	}
	if _, err := conn.NewStream(t.Context(), nil, "/other.Service/Watch"); status.Code(err) != codes.Unimplemented || errors.Is(err, context.Canceled) {
		t.Errorf("stream: %v", err)
	}
}
