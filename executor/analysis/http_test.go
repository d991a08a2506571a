package analysis

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// httpServer answers depending on the path.
func httpServer(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, " {\"status\": \"up\"}\n") })
	mux.HandleFunc("/down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", maxBody+1)) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "short")
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.Header.Get("X-Team"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestHTTPCheck(t *testing.T) {
	server := httpServer(t)
	check := func(path string, edit ...func(*analysis.HTTP)) analysis.HTTP {
		h := analysis.HTTP{Check: analysis.Check{Name: "health", Interval: seconds(0.05), Timeout: seconds(60)}, URL: server.URL + path, Method: http.MethodGet, ExpectedCode: 200}
		for _, f := range edit {
			f(&h)
		}
		return h
	}
	body := func(expected string) func(*analysis.HTTP) {
		return func(h *analysis.HTTP) { h.ExpectedResponse = expected }
	}
	code := func(expected int) func(*analysis.HTTP) {
		return func(h *analysis.HTTP) { h.ExpectedCode = expected }
	}
	for name, c := range map[string]struct {
		check analysis.HTTP
		says  string // beginning of the log line of its only evaluation
	}{
		"as expected":             {check("/ok"), "health: status 200 (expected 200): ok"},
		"another code":            {check("/down"), "ERROR health: status 503 (expected 200): failed"},
		"that other code":         {check("/down", code(503)), "health: status 503 (expected 503): ok"},
		"a redirect is an answer": {check("/moved"), "ERROR health: status 302 (expected 200): failed"},
		"and can be expected":     {check("/moved", code(302)), "health: status 302 (expected 302): ok"},
		"the body":                {check("/ok", body(`{"status": "up"}`)), "health: status 200, and the body is as expected: ok"},
		"another body":            {check("/ok", body(`{"status": "down"}`)), `ERROR health: status 200, but the body is not as expected (expected {"status": "down"}): failed`},
		"a part is not the body":  {check("/ok", body("up")), "ERROR health: status 200, but the body is not as expected (expected up): failed"},
		"a pattern":               {check("/ok", body(`/"status":\s*"(up|ready)"/`)), "health: status 200, and the body is as expected: ok"},
		"another pattern":         {check("/ok", body(`/^up/`)), "ERROR health: status 200, but the body is not as expected (expected /^up/): failed"},
		"a body without end":      {check("/large", body("x")), "ERROR health: the body has more than 1048576 bytes (expected x): failed"},
		"no expected body":        {check("/large"), "health: status 200 (expected 200): ok"},
		"an answer cut short":     {check("/cut"), "ERROR health: no answer: unexpected EOF: error, which counts as a failure"},
		"no answer in time":       {check("/slow", func(h *analysis.HTTP) { h.Timeout = seconds(0.05) }), "ERROR health: no answer: no answer within the timeout of 50ms: error, which counts"},
		"no server":               {check("", func(h *analysis.HTTP) { h.URL = "http://127.0.0.1:1/" }), `ERROR health: no answer: Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused`},
		"a cloud's metadata":      {check("", func(h *analysis.HTTP) { h.URL = "http://169.254.169.254/latest" }), `ERROR health: no answer: Get "http://169.254.169.254/latest": dial tcp 169.254.169.254:80: 169.254.169.254 is a cloud metadata or link-local address`},
		"method, host and header": {check("/echo", body("POST web.example.com core"), func(h *analysis.HTTP) {
			h.Method = http.MethodPost
			h.Headers = []analysis.Header{{Key: "host", Value: "{{ .App.Name }}.example.com"}, {Key: "x-team", Value: "core"}}
		}), "health: status 200, and the body is as expected: ok"},
		"a URL that is filled in": {check("/{{ .AppCustomArgs.path }}", func(h *analysis.HTTP) { h.Template.AppArgs = map[string]string{"path": "ok"} }), "health: status 200 (expected 200): ok"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			result, _ := e.execute(t.Context(), analysis.Options{Duration: seconds(0.05), Checks: analysis.Checks{HTTPS: []analysis.HTTP{c.check}}})
			log := e.log.Lines()
			if len(log) < 3 || !strings.HasPrefix(log[2], c.says) {
				t.Fatalf("the log does not say %q: %q", c.says, log)
			}
			if want := map[bool]deploy.StageStatus{true: deploy.StageFailure, false: deploy.StageSuccess}[strings.HasPrefix(c.says, "ERROR")]; result.Status != want {
				t.Errorf("ended as %+v, want %s", result, want)
			}
		})
	}
}

// TestHTTPCheckThatMakesNoSense: an invalid check fails at once, without a request.
func TestHTTPCheckThatMakesNoSense(t *testing.T) {
	for url, want := range map[string]string{
		"http://{{ .App.Nmae }}/":    `map has no entry for key "Nmae"`,
		"{{ .App.Name }}":            "a b: url: expected a URL such as https://example.com/healthz",
		"file:///etc/passwd":         "https[0]: url: expected a URL such as https://example.com/healthz",
		"file:///{{ .App.Name }}":    "a b: url: expected a URL such as https://example.com/healthz",
		"http://h/?{{ print 1 2 3 }": "cannot be read as a template",
	} {
		e := newEnv(t, nil)
		h := analysis.HTTP{Check: analysis.Check{Name: "a b", Interval: seconds(60), Timeout: seconds(1)}, URL: url, Method: http.MethodGet, ExpectedCode: 200}
		began := time.Now()
		err := e.executor().Analyze(context.Background(), e.run(analysis.Options{}, began, false), "", analysis.Options{Duration: seconds(3600), Checks: analysis.Checks{HTTPS: []analysis.HTTP{h}}}, began)
		if err == nil || !strings.Contains(err.Error(), want) || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: %v, want an error that says %q", url, err, want)
		}
	}
}
