package provider

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// The credentials, which must not appear in errors.
const (
	apiKey         = "0123456789abcdef-api"
	applicationKey = "fedcba9876543210-app"
	password       = "hunter2-of-the-provider"
)

// over is the queried window.
var over = Window{From: time.Unix(1700000000, 0), To: time.Unix(1700000600, 0), Step: time.Minute}

// answering starts a server with one answer, and records the request.
func answering(t *testing.T, status int, body string) (address string, asked *http.Request) {
	asked = &http.Request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = *r.Clone(context.WithoutCancel(r.Context()))
		if status == http.StatusFound {
			w.Header().Set("Location", "http://elsewhere.example.com/")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// file writes a credential.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// only returns a set of one provider.
func only(t *testing.T, c any) *Set {
	s := NewSet()
	t.Cleanup(func() { _ = s.Close() }) // it returns nil
	s.Use([]config.AnalysisProvider{{Name: "p", Config: c}})
	return s
}

func metricsOf(t *testing.T, c any) Metrics {
	t.Helper()
	m, err := only(t, c).Metrics("p")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func logsOf(t *testing.T, c any) Logs {
	t.Helper()
	l, err := only(t, c).Logs("p")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantError fails unless err has the kind, says the text, and shows no credential.
func wantError(t *testing.T, err error, kind deploy.Kind, text string) {
	t.Helper()
	if err == nil || deploy.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v (%s), want kind %s and %q", err, deploy.KindOf(err), kind, text)
	}
	for _, secret := range []string{apiKey, applicationKey, password} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows a credential: %v", err)
		}
	}
}

func TestDatadog(t *testing.T) {
	address, asked := answering(t, 200, `{"status": "ok", "message": "a\nwarning", "series": [
		{"scope": "a", "pointlist": [[1700000000000, 1.5], [1700000060000, null]]}, {"pointlist": [[1700000000000, 2]]}, {"pointlist": []}]}`)
	d := metricsOf(t, &config.Datadog{Address: address + "/", APIKeyFile: file(t, apiKey), ApplicationKeyData: strict.NewSecret(applicationKey + "\n")})
	got, err := d.Query(t.Context(), "avg:errors{app:web} by {pod}", over)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Numbers{Points: []float64{1.5, 2}, Warnings: []string{"a warning"}}, got); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	if asked.URL.Path != "/api/v1/query" || asked.Header.Get("DD-API-KEY") != apiKey || asked.Header.Get("DD-APPLICATION-KEY") != applicationKey {
		t.Errorf("asked %s with %v", asked.URL, asked.Header)
	}
	if diff := cmp.Diff(url.Values{"from": {"1700000000"}, "to": {"1700000600"}, "query": {"avg:errors{app:web} by {pod}"}}, asked.URL.Query()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestDatadogSite(t *testing.T) {
	for address, want := range map[string]string{"datadoghq.com": "https://api.datadoghq.com", "us3.datadoghq.com": "https://api.us3.datadoghq.com", "http://proxy:8080/dd/": "http://proxy:8080/dd"} {
		if got := (&datadog{Datadog: config.Datadog{Address: address}}).base(); got != want {
			t.Errorf("the API of %s is %s, want %s", address, got, want)
		}
	}
}

// TestRefusals: errors are classified, explain what to do, and contain no secret.
func TestRefusals(t *testing.T) {
	ask := map[string]func(t *testing.T, address string) error{
		"Datadog": func(t *testing.T, address string) error {
			_, err := metricsOf(t, &config.Datadog{Address: address, APIKeyFile: file(t, apiKey), ApplicationKeyFile: file(t, applicationKey)}).Query(t.Context(), "q", over)
			return err
		},
		"Loki": func(t *testing.T, address string) error {
			_, err := logsOf(t, &config.Loki{Address: address, UsernameFile: file(t, "u"), PasswordFile: file(t, password)}).Find(t.Context(), "q", over)
			return err
		},
		"Prometheus": func(t *testing.T, address string) error {
			_, err := metricsOf(t, &config.Prometheus{Address: address, UsernameFile: file(t, "u"), PasswordFile: file(t, password)}).Query(t.Context(), "q", over)
			return err
		},
	}
	for name, c := range map[string]struct {
		who    string
		status int
		body   string
		kind   deploy.Kind
		says   string
	}{
		"Datadog, wrong keys":        {"Datadog", 403, `{"errors": ["Forbidden: ` + apiKey + `"]}`, deploy.Invalid, "it answers 403 Forbidden: Forbidden: ***: check the credentials"},
		"Datadog, too often":         {"Datadog", 429, `{"errors": ["Rate limit of 3 requests"]}`, deploy.Unavailable, "it answers 429 Too Many Requests: Rate limit of 3 requests"},
		"Datadog, wrong query":       {"Datadog", 200, `{"status": "error", "error": "Rule 'scope_expr' didn't match"}`, deploy.Invalid, "Datadog cannot answer the query: Rule 'scope_expr' didn't match"},
		"Datadog, a web page":        {"Datadog", 200, "<html>", deploy.Unavailable, "the answer cannot be read (is the address right?)"},
		"Datadog, down":              {"Datadog", 502, "<html>\n" + strings.Repeat("x", 1000), deploy.Unavailable, "it answers 502 Bad Gateway: <html> xxx"},
		"Datadog, moved":             {"Datadog", 302, "", deploy.Unavailable, "it redirects to elsewhere.example.com: write that address into analysisProviders"},
		"Datadog, far too much":      {"Datadog", 200, strings.Repeat(" ", maxAnswer+1), deploy.Unavailable, "the answer has more than 16777216 bytes"},
		"Loki, wrong credentials":    {"Loki", 401, "no", deploy.Invalid, "it answers 401 Unauthorized: no: check the credentials"},
		"Loki, wrong query":          {"Loki", 400, "parse error at line 1", deploy.Invalid, "it answers 400 Bad Request: parse error at line 1"},
		"Loki, numbers":              {"Loki", 200, `{"data": {"resultType": "matrix", "result": []}}`, deploy.Invalid, `the query is answered with a "matrix", not with lines of logs`},
		"Loki, another answer":       {"Loki", 200, `{"data": {"resultType": "streams", "result": [{"values": [["1"]]}]}}`, deploy.Unavailable, "the answer cannot be read"},
		"Prometheus, wrong password": {"Prometheus", 401, "Unauthorized", deploy.Invalid, "check the provider's address and credentials"},
		"Prometheus, down":           {"Prometheus", 503, "", deploy.Unavailable, "Prometheus cannot answer now"},
		"Prometheus, wrong query":    {"Prometheus", 400, `{"status": "error", "errorType": "bad_data", "error": "1:5: parse error"}`, deploy.Invalid, "Prometheus cannot answer the query: 1:5: parse error"},
		"Prometheus, too slow":       {"Prometheus", 503, `{"status": "error", "errorType": "timeout", "error": "query timed out"}`, deploy.Unavailable, "Prometheus cannot answer now: server error: 503 {\"status\": \"error\", \"errorType\": \"timeout\", \"error\": \"query timed out\"}"},
		"Prometheus, moved":          {"Prometheus", 302, "", deploy.Unavailable, "it redirects to elsewhere.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := answering(t, c.status, c.body)
			wantError(t, ask[c.who](t, address), c.kind, c.says)
		})
	}
	for who, ask := range ask {
		t.Run(who+", no server", func(t *testing.T) {
			wantError(t, ask(t, "http://127.0.0.1:1"), deploy.Unavailable, "connection refused")
		})
	}
}

func TestTimeout(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // required to detect the end of the connection
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	slow := errors.New("no answer within the timeout of 50ms")
	for _, c := range []any{&config.Prometheus{Address: server.URL}, &config.Datadog{Address: server.URL, APIKeyData: strict.NewSecret(apiKey)}} {
		ctx, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, slow)
		_, err := metricsOf(t, c).Query(ctx, "q", over)
		wantError(t, err, deploy.Unavailable, slow.Error())
		stop()
	}
}

// TestCredentialsThatAreGone: credential files are read at each query.
func TestCredentialsThatAreGone(t *testing.T) {
	address, asked := answering(t, 200, `{"status": "success", "data": {"resultType": "matrix", "result": []}}`)
	name := file(t, password)
	p := metricsOf(t, &config.Prometheus{Address: address, UsernameFile: file(t, "u"), PasswordFile: name})
	for _, now := range []string{password, "another"} {
		if err := os.WriteFile(name, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Query(t.Context(), "q", over); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := asked.BasicAuth(); got != now {
			t.Errorf("it was asked with password %q, want %q", got, now)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	_, err := p.Query(t.Context(), "q", over)
	wantError(t, err, deploy.Invalid, "read a credential of the analysis provider")
}

func TestLoki(t *testing.T) {
	address, asked := answering(t, 200, `{"status": "success", "data": {"resultType": "streams", "result": [
		{"stream": {"pod": "a"}, "values": [["1700000002000000000", "second"], ["1700000001000000000", "first"]]},
		{"stream": {"pod": "b"}, "values": [["1700000003000000000", "third", {"structured": "metadata"}]]}]}, "warnings": ["partial"]}`)
	l := logsOf(t, &config.Loki{Address: address, Tenant: "shop", UsernameFile: file(t, "u"), PasswordFile: file(t, password)})
	got, err := l.Find(t.Context(), `{app="web"} |= "panic"`, over)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Lines{Lines: []string{"third", "second", "first"}, Warnings: []string{"partial"}}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	user, pass, _ := asked.BasicAuth()
	if asked.URL.Path != "/loki/api/v1/query_range" || asked.Header.Get("X-Scope-OrgID") != "shop" || user != "u" || pass != password {
		t.Errorf("asked %s with %v", asked.URL, asked.Header)
	}
	want := url.Values{"start": {"1700000000000000000"}, "end": {"1700000600000000000"}, "query": {`{app="web"} |= "panic"`}, "limit": {"100"}, "direction": {"backward"}}
	if diff := cmp.Diff(want, asked.URL.Query()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestPoints: all result types of Prometheus.
func TestPoints(t *testing.T) {
	nan := model.SampleValue(math.NaN())
	histogram := &model.SampleHistogram{}
	for name, c := range map[string]struct {
		value model.Value
		want  []float64
		err   string
	}{
		"nothing":              {nil, nil, ""},
		"a scalar":             {&model.Scalar{Value: 3}, []float64{3}, ""},
		"a vector":             {model.Vector{{Value: 1}, {Value: nan}, {Value: 2}}, []float64{1, 2}, ""},
		"a matrix":             {model.Matrix{{Values: []model.SamplePair{{Value: 1}, {Value: 2}}}, {Values: []model.SamplePair{{Value: 3}, {Value: nan}}}}, []float64{1, 2, 3}, ""},
		"no number":            {model.Vector{{Value: nan}}, []float64{}, ""},
		"a text":               {&model.String{Value: "x"}, nil, "the query is answered with a string; expected numbers"},
		"a histogram":          {model.Vector{{Histogram: histogram}}, nil, "native histograms"},
		"histograms over time": {model.Matrix{{Histograms: []model.SampleHistogramPair{{Histogram: histogram}}}}, nil, "native histograms"},
	} {
		points, err := pointsOf(c.value)
		if c.err != "" {
			wantError(t, err, deploy.Invalid, c.err)
			continue
		}
		if diff := cmp.Diff(c.want, numbers(points)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestProviderThatCannotBeAsked: a provider of an unsupported type is rejected by name
// where it is used.
func TestProviderThatCannotBeAsked(t *testing.T) {
	s := only(t, &config.Prometheus{Address: "http://p"})
	s.Use([]config.AnalysisProvider{
		{Name: "google", Type: config.AnalysisStackdriver, Config: &config.Stackdriver{}}, {Name: "q", Config: &config.Prometheus{}},
	})
	_, err := s.Metrics("google")
	wantError(t, err, deploy.Invalid, `provider "google" of metrics is of type STACKDRIVER, which this version of piped does not support: use a provider of type PROMETHEUS or DATADOG`)
	if _, err := s.Metrics("q"); err != nil {
		t.Error(err)
	}
}

// TestSet: providers are found by name and capability, and replaced by a reload.
func TestSet(t *testing.T) {
	s := only(t, &config.Prometheus{Address: "http://p"})
	if _, err := s.Metrics("p"); err != nil {
		t.Error(err)
	}
	_, err := s.Logs("p")
	wantError(t, err, deploy.Invalid, `the agent has no provider of logs named "p" (it has none): name one of those, or add it to analysisProviders of the agent's configuration with type LOKI`)
	s.Use([]config.AnalysisProvider{{Name: "l", Config: &config.Loki{}}, {Name: "d", Config: &config.Datadog{}}, {Name: "q", Config: &config.Prometheus{}}})
	if _, err := s.Logs("l"); err != nil {
		t.Error(err)
	}
	_, err = s.Metrics("p")
	wantError(t, err, deploy.Invalid, `the agent has no provider of metrics named "p" (it has d, q): name one of those`)
}
