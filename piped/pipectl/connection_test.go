package pipectl_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"regexp"
	"strings"
	gosync "sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/forward"
	"github.com/c785c783/piped/piped/pipectl"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = pipectl.Run(ctx, args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// ownHost is a loopback address on which no other test listens, so that the system gives none of
// its ports to another test once it is closed.
const ownHost = "127.0.0.3"

func TestConnections(t *testing.T) {
	cert, key := certificatetest.Write(t, t.TempDir())
	other, otherKey := certificatetest.Write(t, t.TempDir())
	client, clientKey := certificatetest.Write(t, t.TempDir())
	secure := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.CertFile, c.KeyFile = cert, key })
	mutual := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.CertFile, c.KeyFile, c.ClientCAFile = cert, key, client })
	plain := controltest.Start(t, t.TempDir())
	const closed = "127.0.0.1:1" // not a free port of the system, which it may give to another test
	tests := map[string]struct {
		agent *controltest.Agent
		args  []string
		want  string // of stderr; "" for success
	}{
		"TLS with the right certificate":      {secure, []string{"--cert-file", cert}, ""},
		"TLS with the system's roots":         {secure, nil, `certificate.*\nHint: .*--cert-file`},
		"TLS with another certificate":        {secure, []string{"--cert-file", other}, `certificate.*\nHint: .*--cert-file`},
		"mutual TLS":                          {mutual, []string{"--cert-file", cert, "--client-cert-file", client, "--client-key-file", clientKey}, ""},
		"mutual TLS without a certificate":    {mutual, []string{"--cert-file", cert}, `\nHint: the agent .*asks for a client certificate: name yours with --client-cert-file`},
		"mutual TLS with another certificate": {mutual, []string{"--cert-file", cert, "--client-cert-file", other, "--client-key-file", otherKey}, `\nHint: the agent does not accept this client certificate`},
		"a client certificate without a key":  {mutual, []string{"--cert-file", cert, "--client-cert-file", client}, `needs its private key.*\nHint: give both`},
		"an unknown client certificate":       {mutual, []string{"--cert-file", cert, "--client-cert-file", client, "--client-key-file", otherKey}, `read the client certificate: .*\nHint: check --client-cert-file`},
		"a certificate that is none":          {secure, []string{"--cert-file", key}, `no certificate in it\nHint: check --cert-file`},
		"plaintext":                           {plain, []string{"--insecure"}, ""},
		"plaintext to an agent with TLS":      {secure, []string{"--insecure"}, `cannot connect to .*\nHint: .*omit --insecure`},
		"TLS to an agent with plaintext":      {plain, nil, `TLS handshake.*\nHint: .*add --insecure`},
		"no listener":                         {plain, []string{"--insecure", "--address", closed}, `cannot connect to ` + closed + `: .*refused.*\nHint: check that the agent runs`},
		"an address without port":             {plain, []string{"--insecure", "--address", "127.0.0.1"}, `missing port in address\nHint: .*--address`},
		"the real one's way to name resolver": {plain, []string{"--insecure", "--address", "passthrough:///" + plain.Server.Addr()}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"application", "list", "--address", tc.agent.Server.Addr(), "--api-key", tc.agent.ReadOnly}, tc.args...)
			code, stdout, stderr := run(t.Context(), args...)
			if tc.want == "" {
				if code != 0 || stdout != "{}\n" || stderr != "" {
					t.Errorf("code %d, stdout %q, stderr %q, want 0, {} and nothing", code, stdout, stderr)
				}
				return
			}
			if code != 1 || stdout != "" || !regexp.MustCompile("(?s)failed to initialize client: .*"+tc.want).MatchString(stderr) {
				t.Errorf("code %d, stdout %q, stderr %q, want 1, nothing and %s", code, stdout, stderr, tc.want)
			}
		})
	}
}

// TestStartingAgent: the client waits for an agent that is just starting.
func TestStartingAgent(t *testing.T) {
	listener, err := net.Listen("tcp", ownHost+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	agent := controltest.Start(t, t.TempDir()) // which may take as long as the client waits
	started := make(chan struct{})
	go func() {
		defer close(started)
		conn, err := listener.Accept() // the first attempt fails
		if err == nil {
			conn.Close()
		}
		listener.Close()
		f, err := forward.Listen(address, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { f.Close() })
		f.SetTarget(agent.Server.Addr())
	}()
	code, _, stderr := run(t.Context(), "deployment", "get", "--deployment-id=none", "--insecure", "--api-key=a.b", "--address="+address)
	if code != 1 || !strings.Contains(stderr, "code = Unauthenticated") {
		t.Errorf("code %d, stderr %q, want the answer of the agent that came later", code, stderr)
	}
	<-started
}

func TestInterrupted(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelOn{text: "...", cancel: cancel}
	args := []string{"deployment", "wait-status", "--deployment-id=d1", "--status=DEPLOYMENT_SUCCESS", "--insecure",
		"--address", agent.Server.Addr(), "--api-key", agent.ReadOnly}
	if code := pipectl.Run(ctx, args, strings.NewReader(""), out, out); code != pipectl.ExitInterrupted {
		t.Errorf("exit code %d, want %d", code, pipectl.ExitInterrupted)
	}
	if !strings.Contains(out.buf.String(), "stopped waiting for deployment d1: context canceled") {
		t.Errorf("output %q does not say that the wait was stopped", out.buf.String())
	}
}

// cancelOn is an output that cancels a context when a text is written.
type cancelOn struct {
	buf    bytes.Buffer
	text   string
	cancel func()
}

func (c *cancelOn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.cancel()
	}
	return c.buf.Write(p)
}

// odd is an API with answers that the agent never gives.
type odd struct {
	apiservice.UnimplementedAPIServiceServer
	command    *modelv1.Command
	deployment *modelv1.Deployment

	mu     gosync.Mutex
	errors []error // answers to the first calls of GetDeployment
}

func (o *odd) SyncApplication(context.Context, *apiservice.SyncApplicationRequest) (*apiservice.SyncApplicationResponse, error) {
	return &apiservice.SyncApplicationResponse{CommandId: "c1"}, nil
}

func (o *odd) GetCommand(context.Context, *apiservice.GetCommandRequest) (*apiservice.GetCommandResponse, error) {
	return &apiservice.GetCommandResponse{Command: o.command}, nil
}

func (o *odd) GetDeployment(context.Context, *apiservice.GetDeploymentRequest) (*apiservice.GetDeploymentResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.errors) > 0 {
		err := o.errors[0]
		o.errors = o.errors[1:]
		return nil, err
	}
	return &apiservice.GetDeploymentResponse{Deployment: o.deployment}, nil
}

func TestOddAnswers(t *testing.T) {
	success := &modelv1.Deployment{Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS}
	sync := []string{"application", "sync", "--app-id=a"}
	wait := []string{"deployment", "wait-status", "--deployment-id=d", "--status=DEPLOYMENT_SUCCESS"}
	tests := map[string]struct {
		api  *odd
		args []string
		code int
		want string
	}{
		"no command":        {&odd{}, sync, 1, "the agent's answer holds no command c1"},
		"another command":   {&odd{command: &modelv1.Command{Type: modelv1.Command_SKIP_STAGE}}, sync, 1, "Unexpected command type SKIP_STAGE\n"},
		"no deployment ID":  {&odd{command: &modelv1.Command{Status: modelv1.CommandStatus_COMMAND_SUCCEEDED}}, sync, 1, "failed to detect the triggered deployment ID"},
		"command timed out": {&odd{command: &modelv1.Command{Status: modelv1.CommandStatus_COMMAND_TIMEOUT}}, sync, 1, "The request was timed out\n"},
		"unknown status of a command": {&odd{command: &modelv1.Command{Status: 77}}, append(sync, "--timeout=10s", "--check-interval=1s"), 1,
			"waited 10s for the agent to accept the request"}, // the request has to be sent by then
		"no deployment": {&odd{}, wait, 1, "the agent's answer holds no deployment d"},
		"errors that pass": {&odd{deployment: success, errors: []error{status.Error(codes.Unavailable, "one"), status.Error(codes.Internal, "two")}},
			append(wait, "--check-interval=10ms"), 0, "failed to get deployment, trying again: rpc error: code = Internal desc = two\n"},
		"an error that does not pass": {&odd{errors: []error{status.Error(codes.PermissionDenied, "no")}}, wait, 1, "failed to get deployment: rpc error: code = PermissionDenied desc = no"},
		"not served":                  {&odd{}, []string{"deployment", "logs", "--deployment-id=d"}, 1, "Hint: this version of the agent does not have it"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			apiservice.RegisterAPIServiceServer(server, tc.api)
			var served gosync.WaitGroup
			served.Go(func() { _ = server.Serve(listener) }) // ends with Stop
			defer served.Wait()
			defer server.Stop()
			code, stdout, stderr := run(t.Context(), append(tc.args, "--insecure", "--api-key=a.b", "--address="+listener.Addr().String())...)
			if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("code %d, stdout %q, stderr %q, want %d, nothing and %q", code, stdout, stderr, tc.code, tc.want)
			}
		})
	}
}

// TestHintOnAFullDisk: an agent with a full disk answers with an error, whose hint says
// what to do.
func TestHintOnAFullDisk(t *testing.T) {
	const full, away = "Hint: the agent's disk is full: free space", "Hint: the agent does not answer"
	tests := map[string]string{
		"store the command: database or disk is full (13)":                                                full,
		"write to the data directory /data: write /data/probe: no space left on device: free space there": full,
		"the agent is shutting down: call again once it is back":                                          away,
	}
	for message, want := range tests {
		server := answering(t, map[string][]any{"SyncApplication": {status.Error(codes.Unavailable, message)}})
		code, _, stderr := server.run(t, "application", "sync", "--app-id=app-1")
		if code == 0 || !strings.Contains(stderr, message) || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, stderr %q, want the message and %q", code, stderr, want)
		}
	}
}
