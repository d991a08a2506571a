package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the test ends and returns its URL.
func start(t *testing.T, ready func() error) (url string) {
	t.Helper()
	s, err := New(Config{Address: "127.0.0.1:0", Ready: ready})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	return "http://" + s.Addr()
}

// run runs a server until the test ends and checks that Run returns nil.
func run(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v, want nil after its context ended", err)
		}
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) { // another test may listen on the address by now
			t.Errorf("the address is still served after Run returned: %v", err)
		}
	})
}

func get(t *testing.T, method, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestRoutes(t *testing.T) {
	url := start(t, func() error { return errors.New("cluster dev: connection refused") })
	tests := map[string]struct {
		method, path string
		code         int
		body         string
	}{
		"alive though not ready":       {"GET", "/healthz", 200, "ok\n"},
		"not ready says why":           {"GET", "/readyz", 503, "not ready: cluster dev: connection refused\n"},
		"head works for probes":        {"HEAD", "/healthz", 200, ""},
		"nothing else is there":        {"GET", "/", 404, "404 page not found\n"},
		"nothing below either":         {"GET", "/healthz/more", 404, "404 page not found\n"},
		"probes do not change a thing": {"POST", "/readyz", 405, "Method Not Allowed\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, body := get(t, tc.method, url+tc.path)
			if code != tc.code || body != tc.body {
				t.Errorf("%s %s = %d %q, want %d %q", tc.method, tc.path, code, body, tc.code, tc.body)
			}
		})
	}
}

func TestReadyIsAskedEachTime(t *testing.T) {
	var ready atomic.Bool
	url := start(t, func() error {
		if ready.Load() {
			return nil
		}
		return errors.New("starting")
	})
	if code, _ := get(t, "GET", url+"/readyz"); code != 503 {
		t.Errorf("before: code %d, want 503", code)
	}
	ready.Store(true)
	if code, body := get(t, "GET", url+"/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("after: %d %q, want 200 ok", code, body)
	}
}

func TestReadyByDefault(t *testing.T) {
	if code, _ := get(t, "GET", start(t, nil)+"/readyz"); code != 200 {
		t.Errorf("code %d, want 200", code)
	}
}

func TestMetricsAreThoseOfTheHandler(t *testing.T) {
	s, err := New(Config{Address: "127.0.0.1:0", Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, "up 1\n"); err != nil {
			t.Error(err)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	if code, body := get(t, "GET", "http://"+s.Addr()+"/metrics"); code != 200 || body != "up 1\n" {
		t.Errorf("%d %q, want 200 and what the handler says", code, body)
	}
	if code, _ := get(t, "POST", "http://"+s.Addr()+"/metrics"); code != 405 {
		t.Errorf("a POST: %d, want 405", code)
	}
	if code, _ := get(t, "GET", start(t, nil)+"/metrics"); code != 404 {
		t.Errorf("without a handler: %d, want 404", code)
	}
}

func TestPortInUse(t *testing.T) {
	s, err := New(Config{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Address: s.Addr()})
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), s.Addr()) || !strings.Contains(err.Error(), "web.address") {
		t.Errorf("error %v, want one of kind Invalid that names the address and web.address", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("Run on a closed listener returned nil, want the error")
	}
}
