package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// faulty is a real store whose commands cannot be read.
type faulty struct {
	control.Store
	fail func() error
}

func (f faulty) Command(context.Context, string) (deploy.Command, error) {
	return deploy.Command{}, f.fail()
}

// logs is a log that can be read while it is written.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// take returns the log since the last call.
func (l *logs) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

// withFault makes GetCommand fail and logs to out.
func withFault(out *logs, fail func() error) controltest.Option {
	return func(c *control.Config) {
		c.Store = faulty{Store: c.Store, fail: fail}
		c.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

func TestErrorsOfTheDomainBecomeCodes(t *testing.T) {
	inside := errors.New("dial postgres://piped:hunter2@db")
	tests := map[string]struct {
		err    error
		code   codes.Code
		want   string
		logged bool
	}{
		"invalid":     {deploy.Errorf(deploy.Invalid, "spec is wrong"), codes.InvalidArgument, "spec is wrong", false},
		"not found":   {deploy.Errorf(deploy.NotFound, "row 7"), codes.NotFound, "Command is not found", false},
		"exists":      {deploy.Errorf(deploy.Exists, "it is there"), codes.AlreadyExists, "it is there", false},
		"conflict":    {deploy.Errorf(deploy.Conflict, "it changed"), codes.Aborted, "it changed", false},
		"illegal":     {deploy.Errorf(deploy.Illegal, "it has ended"), codes.FailedPrecondition, "it has ended", false},
		"unavailable": {deploy.Errorf(deploy.Unavailable, "database is gone"), codes.Unavailable, "database is gone", false},
		"stopping":    {deploy.Errorf(deploy.Stopping, "agent ends"), codes.Unavailable, "agent ends", false},
		"denied":      {deploy.Errorf(deploy.Denied, "not signed"), codes.PermissionDenied, "not signed", false},
		"internal":    {deploy.Errorf(deploy.Internal, "read: %w", inside), codes.Internal, "GetCommand failed with an internal error; see the agent's log", true},
		"any other":   {inside, codes.Internal, "GetCommand failed with an internal error; see the agent's log", true},
		"wrapped":     {fmt.Errorf("read: %w", deploy.Errorf(deploy.Conflict, "it changed")), codes.Aborted, "read: it changed", false},
		"inner limit": {fmt.Errorf("read: %w", context.DeadlineExceeded), codes.Unavailable,
			"GetCommand did not end within its time limit; the agent or a cluster is busy, so try again", false},
		"not UTF-8": {deploy.Errorf(deploy.Invalid, "name \xff"), codes.InvalidArgument, "name \uFFFD", false},
		"wraps a status": {deploy.Errorf(deploy.Unavailable, "peer: %w", status.Error(codes.NotFound, "x")), codes.Unavailable,
			"peer: rpc error: code = NotFound desc = x", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out := &logs{}
			ctx, client, _ := api(t, withFault(out, func() error { return tc.err }))
			_, err := client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: "c"})
			if status.Code(err) != tc.code || status.Convert(err).Message() != tc.want {
				t.Errorf("got %v, want %s %q", err, tc.code, tc.want)
			}
			if logged := strings.Count(out.String(), "level=ERROR"); (logged == 1) != tc.logged || logged > 1 {
				t.Errorf("logged as error %d times, want logged %v", logged, tc.logged)
			}
		})
	}
}

func TestPanicOfAHandler(t *testing.T) {
	out := &logs{}
	ctx, client, _ := api(t, withFault(out, func() error { panic("boom") }))
	_, err := client.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: "c"})
	if status.Code(err) != codes.Internal || status.Convert(err).Message() != "GetCommand failed because of a bug in the agent; see the agent's log" {
		t.Errorf("got %v, want Internal without the panic's text", err)
	}
	if n := strings.Count(out.String(), "boom"); n != 1 || !strings.Contains(out.String(), "faulty.Command") {
		t.Errorf("the panic is in the log %d times, want once and with its stack:\n%s", n, out)
	}
	if _, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{}); err != nil {
		t.Errorf("the next call failed: %v", err)
	}
}

// watchless is a real store whose deployments cannot be read.
type watchless struct{ control.Store }

func (watchless) DeploymentsIn(context.Context, ...deploy.Status) ([]deploy.Deployment, error) {
	panic("boom")
}

func TestPanicOfAHandlerThatStreams(t *testing.T) {
	out := &logs{}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Store, c.Logger = watchless{c.Store}, slog.New(slog.NewTextHandler(out, nil))
	})
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	stream, err := client.WatchDeployments(as(t, agent.ReadOnly), &controlv1.WatchDeploymentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v, want Internal without the panic's text", err)
	}
	if n := strings.Count(out.String(), "boom"); n != 1 || !strings.Contains(out.String(), "watchless.DeploymentsIn") {
		t.Errorf("the panic is in the log %d times, want once and with its stack:\n%s", n, out)
	}
	if _, err := client.ListCandidates(as(t, agent.ReadOnly), &controlv1.ListCandidatesRequest{}); err != nil {
		t.Errorf("the next call failed: %v", err)
	}
}

func TestLogNamesTheCallerAndNoSecret(t *testing.T) {
	out := &logs{}
	_, client, agent := api(t, withFault(out, func() error { return nil }))
	wrong := agent.ReadOnly[:len(agent.ReadOnly)-1] + "!"
	for _, key := range []string{agent.ReadWrite, agent.ReadOnly, wrong} {
		_, _ = client.ListApplications(as(t, key), &apiservice.ListApplicationsRequest{}) // only the log matters here
	}
	log := out.String()
	for _, key := range []string{agent.ReadWrite, agent.ReadOnly, wrong} {
		id, secret, _ := strings.Cut(key, ".")
		if strings.Contains(log, secret) {
			t.Errorf("the log holds the secret of key %s", id)
		}
	}
	id, _, _ := strings.Cut(agent.ReadOnly, ".")
	for _, want := range []string{"key=" + id, "subject=watcher", "subject=owner", "code=OK", "code=Unauthenticated", "APIService/ListApplications"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not hold %q:\n%s", want, log)
		}
	}
}

// TestKeysThatCannotBeRead: a failing store is not reported as a wrong key.
func TestKeysThatCannotBeRead(t *testing.T) {
	ctx, client, _ := api(t, func(c *control.Config) { c.Store = keyless{c.Store} })
	_, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

type keyless struct{ control.Store }

func (keyless) APIKey(context.Context, string) (deploy.APIKey, error) {
	return deploy.APIKey{}, deploy.Errorf(deploy.Unavailable, "database is gone")
}
