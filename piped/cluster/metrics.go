package cluster

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// RequestMetrics counts and times the requests to the API servers of clusters.
type RequestMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewRequestMetrics returns RequestMetrics that are registered with r.
func NewRequestMetrics(r prometheus.Registerer) *RequestMetrics {
	const subsystem = "kubernetes"
	return &RequestMetrics{
		requests: metric.Counters(r, subsystem, "requests_total",
			"Requests to the API server of a cluster, by verb and result: the class of the status, such as `2xx`, or `error` when there was no answer. Verbs are those of Kubernetes, and `dry_run` and `discover`.", "cluster", "verb", "result"),
		duration: metric.Histograms(r, subsystem, "request_duration_seconds",
			"Time until the API server of a cluster began to answer, by verb. Watches are left out.", metric.AnswerBuckets(), "cluster", "verb"),
	}
}

// Wrap returns the ClusterConfig.WrapTransport that counts the requests to the named cluster,
// nil if m is nil.
func (m *RequestMetrics) Wrap(cluster string) func(http.RoundTripper) http.RoundTripper {
	if m == nil {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return countedRequests{m, cluster, next} }
}

// countedRequests is a transport that counts requests.
type countedRequests struct {
	metrics *RequestMetrics
	cluster string
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Cancelled requests are not counted.
func (c countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := c.next.RoundTrip(r)
	if errors.Is(err, context.Canceled) {
		return resp, err
	}
	result, verb := metric.Error, verbOf(r)
	if err == nil {
		result = strconv.Itoa(resp.StatusCode/100) + "xx"
	}
	c.metrics.requests.WithLabelValues(c.cluster, verb, result).Inc()
	if verb != verbWatch {
		c.metrics.duration.WithLabelValues(c.cluster, verb).Observe(time.Since(began).Seconds())
	}
	return resp, err
}

// WrappedRoundTripper returns the transport to close.
func (c countedRequests) WrappedRoundTripper() http.RoundTripper { return c.next }

// The verbs of requests: those of Kubernetes, verbDryRun for dry runs and verbDiscover for
// paths that name no resource.
const (
	verbWatch    = "watch"
	verbList     = "list"
	verbGet      = "get"
	verbDryRun   = "dry_run"
	verbDiscover = "discover"
)

var verbsOfMethods = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// verbOf returns the Kubernetes verb of a request, or verbDryRun or verbDiscover.
func verbOf(r *http.Request) string {
	query := r.URL.Query()
	if verb := verbsOfMethods[r.Method]; verb != "" {
		if query.Has("dryRun") {
			return verbDryRun
		}
		return verb
	}
	switch watch := query.Get("watch"); {
	case watch == "true" || watch == "1":
		return verbWatch
	default:
		return readVerb(r.URL.Path)
	}
}

// readVerb returns the verb of a GET by its path. The paths .../api/v1/<resource> and
// .../apis/<group>/<version>/<resource> are lists, also with namespaces/<name> before the
// resource. A longer path is a get, a path without a resource verbDiscover.
func readVerb(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts { // an API server may be served below a path
		switch part {
		case "api":
			parts = parts[min(len(parts), i+2):]
		case "apis":
			parts = parts[min(len(parts), i+3):]
		default:
			continue
		}
		if len(parts) > 2 && parts[0] == "namespaces" {
			parts = parts[2:]
		}
		switch len(parts) {
		case 0:
			return verbDiscover
		case 1:
			return verbList
		}
		return verbGet
	}
	return verbDiscover
}
