package web

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestProfiler: only profiles are served, and only to local requests.
func TestProfiler(t *testing.T) {
	p, err := NewProfiler("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	url := "http://" + p.Addr()
	if code, body := get(t, http.MethodGet, url+"/debug/pprof/goroutine?debug=1"); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("goroutines: %d, %s", code, body)
	}
	if code, _ := get(t, http.MethodGet, url+"/metrics"); code != http.StatusNotFound {
		t.Errorf("something else: %d", code)
	}
	_, port, _ := strings.Cut(p.Addr(), ":")
	if code, _ := get(t, http.MethodGet, "http://localhost:"+port+"/debug/pprof/"); code != http.StatusOK {
		t.Errorf("by the name of this machine: %d", code)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/debug/pprof/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host, req.Close = "evil.example:"+port, true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a browser that another site led here: %d", resp.StatusCode)
	}
}

// TestProfilerBeyondLoopback: other addresses are rejected.
func TestProfilerBeyondLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		p, err := NewProfiler(address, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = p.Close() // the test has already failed
		}
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "use 127.0.0.1:<port>") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
