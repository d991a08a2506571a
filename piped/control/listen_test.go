package control_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestListenRules(t *testing.T) {
	cert, key := certificatetest.Write(t, t.TempDir())
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	tests := map[string]struct {
		cfg  control.Config
		want []string // parts of the error; none for success
	}{
		"plaintext on loopback":                    {control.Config{Address: "127.0.0.1:0"}, nil},
		"plaintext on localhost":                   {control.Config{Address: "localhost:0"}, nil},
		"plaintext on all interfaces":              {control.Config{Address: "0.0.0.0:0"}, []string{"api.tlsCertFile", "api.tlsKeyFile", "api.insecure", "0.0.0.0:0"}},
		"plaintext on an address without host":     {control.Config{Address: ":0"}, []string{"api.tlsCertFile", "api.insecure"}},
		"plaintext on a name":                      {control.Config{Address: "piped.example.com:0"}, []string{"api.tlsCertFile", "api.insecure"}},
		"plaintext on all interfaces, written out": {control.Config{Address: "0.0.0.0:0", Insecure: true}, nil},
		"TLS on all interfaces":                    {control.Config{Address: "0.0.0.0:0", CertFile: cert, KeyFile: key}, nil},
		"certificate without key":                  {control.Config{Address: "127.0.0.1:0", CertFile: cert}, []string{"api.tlsCertFile", "api.tlsKeyFile", "only one"}},
		"key without certificate":                  {control.Config{Address: "127.0.0.1:0", KeyFile: key}, []string{"api.tlsCertFile", "api.tlsKeyFile", "only one"}},
		"client certificates without TLS":          {control.Config{Address: "127.0.0.1:0", ClientCAFile: cert}, []string{"api.clientCAFile", "api.tlsCertFile"}},
		"an audit file that cannot be written":     {control.Config{Address: "127.0.0.1:0", AuditFile: cert + "/audit"}, []string{"api.auditFile", cert + "/audit"}},
		"no such certificate":                      {control.Config{Address: "127.0.0.1:0", CertFile: cert + ".none", KeyFile: key}, []string{cert + ".none", "no such file"}},
		"key and certificate swapped":              {control.Config{Address: "127.0.0.1:0", CertFile: key, KeyFile: cert}, []string{"api.tlsCertFile " + key}},
		"port in use":                              {control.Config{Address: busy.Addr().String()}, []string{busy.Addr().String(), "api.address", "in use"}},
		"no port":                                  {control.Config{Address: "127.0.0.1", Insecure: true}, []string{"api.address", "missing port"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := control.New(tc.cfg)
			if err == nil {
				defer s.Close()
			}
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("error %v, want one that names %q", err, tc.want)
			}
			if err != nil && !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("the error's kind is %s, want invalid", deploy.KindOf(err))
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

func TestTLS(t *testing.T) {
	cert, key := certificatetest.Write(t, t.TempDir())
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.CertFile, c.KeyFile = cert, key })
	if !agent.Server.Secure() {
		t.Error("Secure is false with a certificate")
	}
	creds, err := credentials.NewClientTLSFromFile(cert, "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(agent.Server.Addr(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := grpc_health_v1.NewHealthClient(dial(t, agent.Server.Addr())).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err == nil {
		t.Error("plaintext was answered on a TLS port")
	}
}

// healthWatched runs a server and returns the stream of its health, which has begun, a function
// that stops the server, and the result of Run.
func healthWatched(ctx context.Context, t *testing.T, grace time.Duration) (stream grpc_health_v1.Health_WatchClient, stop func(), ended <-chan error) {
	t.Helper()
	s, err := control.New(control.Config{Address: "127.0.0.1:0", Store: storetest.New(t, nil), Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Run(running) }()
	if stream, err = grpc_health_v1.NewHealthClient(dial(t, s.Addr())).Watch(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if resp, err := stream.Recv(); err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("at first the health is %v, %v", resp, err)
	}
	return stream, stop, result
}

// TestHealthOfAServerThatStops: clients see the stop while the server waits for their streams.
func TestHealthOfAServerThatStops(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	stream, stop, ended := healthWatched(ctx, t, time.Hour)
	stop()
	if resp, err := stream.Recv(); err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("afterwards the health is %v, %v", resp, err)
	}
	leave()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
}

// TestRunEndsThoughAStreamGoesOn: a stream is aborted after the grace period, which may be over
// before the stream has sent the stop.
func TestRunEndsThoughAStreamGoesOn(t *testing.T) {
	stream, stop, ended := healthWatched(t.Context(), t, 50*time.Millisecond)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	resp, err := stream.Recv()
	if err == nil && resp.Status == grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		_, err = stream.Recv()
	}
	if err == nil {
		t.Error("the stream goes on after Run returned")
	}
}

func TestRunOnClosedListener(t *testing.T) {
	s, err := control.New(control.Config{Address: "127.0.0.1:0", Store: storetest.New(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("Run returned %v, want an error that names the address", err)
	}
}
