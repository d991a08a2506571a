package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// TestVerbs: requests count under the verb that Kubernetes would give them.
func TestVerbs(t *testing.T) {
	t.Parallel()
	tests := []struct{ method, target, want string }{
		{"GET", "/api/v1/namespaces/shop/configmaps/web", "get"},
		{"GET", "/api/v1/namespaces/shop", "get"},
		{"GET", "/api/v1/namespaces", "list"},
		{"GET", "/api/v1/namespaces/shop/configmaps?limit=500", "list"},
		{"GET", "/api/v1/pods?labelSelector=a", "list"},
		{"GET", "/apis/apps/v1/deployments?watch=true&resourceVersion=7", "watch"},
		{"GET", "/apis/apps/v1/deployments?watch=1", "watch"},
		{"GET", "/apis/apps/v1/namespaces/shop/deployments/web/status", "get"},
		{"GET", "/below/a/path/apis/apps/v1/namespaces/shop/deployments/web", "get"},
		{"GET", "/apis/apps/v1", "discover"},
		{"GET", "/api/v1", "discover"},
		{"GET", "/api", "discover"},
		{"GET", "/apis", "discover"},
		{"GET", "/version", "discover"},
		{"POST", "/api/v1/namespaces/shop/configmaps", "create"},
		{"PUT", "/api/v1/namespaces/shop/configmaps/web", "update"},
		{"PATCH", "/api/v1/namespaces/shop/configmaps/web?force=true&fieldManager=piped", "patch"},
		{"PATCH", "/api/v1/namespaces/shop/configmaps/web?dryRun=All", "dry_run"},
		{"DELETE", "/api/v1/namespaces/shop/configmaps/web", "delete"},
	}
	for _, tt := range tests {
		if got := verbOf(httptest.NewRequest(tt.method, tt.target, nil)); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.method, tt.target, got, tt.want)
		}
	}
}

// gathered returns the values of counters and the counts of histograms, by name and labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// TestCountedRequests: requests are counted by the class of their status, cancelled ones
// are not, and the wrapped transport can be reached.
func TestCountedRequests(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods/none" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(api.Close)
	registry := prometheus.NewRegistry()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	transport := NewRequestMetrics(registry).Wrap("local")(base)
	ask := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			err = errors.Join(err, resp.Body.Close())
		}
		return err
	}
	for _, path := range []string{"/api/v1/pods", "/api/v1/pods/none", "/api/v1/pods?watch=true"} {
		if err := ask(t.Context(), api.URL+path); err != nil {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(gone, api.URL+"/api/v1/pods"); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was given up: %v", err)
	}
	if err := ask(t.Context(), "http://127.0.0.1:1/api/v1/pods"); err == nil {
		t.Error("no server answers, and there is no error")
	}
	want := map[string]float64{
		"piped_kubernetes_requests_total{cluster=local,result=2xx,verb=list}":   1,
		"piped_kubernetes_requests_total{cluster=local,result=4xx,verb=get}":    1,
		"piped_kubernetes_requests_total{cluster=local,result=2xx,verb=watch}":  1,
		"piped_kubernetes_requests_total{cluster=local,result=error,verb=list}": 1,
		"piped_kubernetes_request_duration_seconds{cluster=local,verb=list}":    2,
		"piped_kubernetes_request_duration_seconds{cluster=local,verb=get}":     1,
	}
	if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, ok := transport.(utilnet.RoundTripperWrapper); !ok {
		t.Error("the transport below cannot be reached")
	}
}
