package control_test

import (
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// retryDelay returns the delay that a response asks for.
func retryDelay(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	t.Errorf("%v has no retry delay", err)
	return 0
}

// TestCallsAreLimitedByKey: a key that exceeds the limit gets a delay, other keys are not
// affected, and rejected calls are not audited.
func TestCallsAreLimitedByKey(t *testing.T) {
	out := &logs{}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.RateLimit = control.RateLimit{PerSecond: 2, Burst: 3}
		c.Logger = slog.New(slog.NewTextHandler(out, nil))
	})
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	list := func(key string) error {
		_, err := client.ListApplications(as(t, key), &apiservice.ListApplicationsRequest{})
		return err
	}
	for range 3 {
		if err := list(agent.ReadWrite); err != nil {
			t.Fatal(err)
		}
	}
	err := list(agent.ReadWrite)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "try again in 500ms") || retryDelay(t, err) != 500*time.Millisecond {
		t.Errorf("the fourth call: %v", err)
	}
	_, err = client.DisableApplication(as(t, agent.ReadWrite), &apiservice.DisableApplicationRequest{ApplicationId: "a"})
	if status.Code(err) != codes.ResourceExhausted || strings.Contains(out.String(), "component=audit") {
		t.Errorf("a change: %v, log:\n%s", err, out)
	}
	if err := list(agent.ReadOnly); err != nil {
		t.Errorf("another key: %v", err)
	}
	agent.Tick(500 * time.Millisecond)
	if err := list(agent.ReadWrite); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	agent.Server.SetRateLimit(control.RateLimit{})
	for range 20 {
		if err := list(agent.ReadWrite); err != nil {
			t.Fatalf("without a limit: %v", err)
		}
	}
}

// TestAStreamCountsOnce: a stream takes one token, whatever it sends.
func TestAStreamCountsOnce(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.RateLimit = control.RateLimit{PerSecond: 1, Burst: 2} })
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for _, name := range []string{"a", "b", "c"} {
		agent.Deployment(name, agent.Application(name, nil), "")
	}
	stream, err := client.WatchDeployments(as(t, agent.ReadOnly), &controlv1.WatchDeploymentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 + 1 { // exactly the remaining tokens
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if _, err := client.GetStatus(as(t, agent.ReadOnly), &controlv1.GetStatusRequest{}); status.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestWrongCredentialsAreLimited: by network; cached valid keys from the same network are not
// affected, and the log is limited, too.
func TestWrongCredentialsAreLimited(t *testing.T) {
	out := &logs{}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Logger = slog.New(slog.NewTextHandler(out, nil)) })
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	list := func(key string) error {
		_, err := client.ListApplications(as(t, key), &apiservice.ListApplicationsRequest{})
		return err
	}
	if err := list(agent.ReadOnly); err != nil {
		t.Fatal(err)
	}
	wrong := agent.ReadOnly[:len(agent.ReadOnly)-1] + "!"
	var err error
	for n := 0; n <= 100; n++ {
		if err = list(wrong); (status.Code(err) == codes.Unauthenticated) != (n < 100) {
			t.Fatalf("attempt %d: %v", n, err)
		}
	}
	if status.Code(err) != codes.ResourceExhausted || retryDelay(t, err) != 100*time.Millisecond || !strings.Contains(err.Error(), "invalid credentials from this address") {
		t.Errorf("one too many: %v", err)
	}
	if err := list(agent.ReadOnly); err != nil {
		t.Errorf("a key that is known: %v", err)
	}
	if err := list(agent.ReadWrite); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a key that was not looked up yet: %v", err)
	}
	if n := strings.Count(out.String(), "call rejected: invalid credentials"); n != 5 || strings.Contains(out.String(), wrong) {
		t.Errorf("logged %d times:\n%s", n, out)
	}
	agent.Tick(time.Second)
	if err := list(agent.ReadWrite); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

// TestRequestsThatAreTooLarge get a clear error; encryption accepts larger ones than all
// other methods.
func TestRequestsThatAreTooLarge(t *testing.T) {
	ctx, client, _ := api(t)
	large := strings.Repeat("x", 4<<20)
	_, err := client.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: large})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "GetApplication takes up to 4194304: send less") {
		t.Errorf("a request of more than 4 MiB: %v", err)
	}
	_, err = client.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: large[:len(large)-16]})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a request of less: %s", status.Code(err))
	}
	largest := strings.Repeat("x", 10<<20)
	_, err = client.Encrypt(ctx, &apiservice.EncryptRequest{Plaintext: largest, PipedId: controltest.PipedID})
	if status.Code(err) == codes.ResourceExhausted {
		t.Errorf("encryption of 10 MiB: %v", err)
	}
	_, err = client.Encrypt(ctx, &apiservice.EncryptRequest{Plaintext: largest + large, PipedId: controltest.PipedID})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("encryption of more: %v", err)
	}
}

// TestBoundsOfAConnection: limits are announced to clients, and one that pings too often is
// disconnected.
func TestBoundsOfAConnection(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	conn, err := net.Dial("tcp", agent.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i := range byte(10) {
		if err := framer.WritePing(false, [8]byte{i}); err != nil {
			break // already disconnected
		}
	}
	settings := map[http2.SettingID]uint32{}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ended without a word: %v", err)
		}
		if f, ok := frame.(*http2.SettingsFrame); ok && !f.IsAck() {
			_ = f.ForeachSetting(func(s http2.Setting) error { settings[s.ID] = s.Val; return nil })
		}
		if f, ok := frame.(*http2.GoAwayFrame); ok {
			if f.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("cut off because of %s", f.ErrCode)
			}
			break
		}
	}
	if settings[http2.SettingMaxConcurrentStreams] != 1000 || settings[http2.SettingMaxHeaderListSize] != 16<<10 {
		t.Errorf("settings %v", settings)
	}
}

// TestTwoHundredClientsOfOneKey are not limited by the default.
func TestTwoHundredClientsOfOneKey(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.RateLimit = control.RateLimit{PerSecond: 1000, Burst: 2000} })
	var all sync.WaitGroup
	for range 200 {
		conn, err := grpc.NewClient("passthrough:///"+agent.Server.Addr(), plaintext)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer conn.Close()
			for range 5 { // the clock stands still, so all calls are one burst
				if _, err := apiservice.NewAPIServiceClient(conn).ListApplications(as(t, agent.ReadOnly), &apiservice.ListApplicationsRequest{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
