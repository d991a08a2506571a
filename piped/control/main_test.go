package control_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

// dial connects without credentials.
func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, plaintext)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// as returns a context with a key.
func as(t testing.TB, key string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "API-KEY "+key)
}

// api returns a client of a new agent and a context for READ_WRITE calls.
func api(t testing.TB, options ...controltest.Option) (context.Context, apiservice.APIServiceClient, *controltest.Agent) {
	t.Helper()
	agent := controltest.Start(t, t.TempDir(), options...)
	return as(t, agent.ReadWrite), apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr())), agent
}
