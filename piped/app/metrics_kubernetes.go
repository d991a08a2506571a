package app

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// kubernetesFigures are those of requests to API servers, of all clients of a cluster.
type kubernetesFigures struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newKubernetesFigures(auto promauto.Factory) *kubernetesFigures {
	const part = "kubernetes"
	return &kubernetesFigures{
		requests: counters(auto, part, "requests_total",
			"Requests to the API server of a cluster, by verb and result: the class of the status, such as `2xx`, or `error` when there was no answer. Verbs are those of Kubernetes, and `dry_run` and `discover`.", "cluster", "verb", "result"),
		duration: histograms(auto, part, "request_duration_seconds",
			"Time until the API server of a cluster began to answer, by verb. Watches are left out.", answerBuckets, "cluster", "verb"),
	}
}

// wrap returns what puts itself before the transport of a cluster's clients.
func (f *kubernetesFigures) wrap(cluster string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return countedRequests{f, cluster, next} }
}

// countedRequests is a transport that counts.
type countedRequests struct {
	figures *kubernetesFigures
	cluster string
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A request that was given up is not counted.
func (c countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := c.next.RoundTrip(r)
	if errors.Is(err, context.Canceled) {
		return resp, err
	}
	result, verb := resultError, verbOf(r)
	if err == nil {
		result = strconv.Itoa(resp.StatusCode/100) + "xx"
	}
	c.figures.requests.WithLabelValues(c.cluster, verb, result).Inc()
	if verb != verbWatch {
		c.figures.duration.WithLabelValues(c.cluster, verb).Observe(time.Since(began).Seconds())
	}
	return resp, err
}

// WrappedRoundTripper lets the client find the transport to close.
func (c countedRequests) WrappedRoundTripper() http.RoundTripper { return c.next }

// The verbs of requests, as Kubernetes calls them, and two of our own: one of what is
// tried only, one of what is about no resource, such as what the server can do.
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

// verbOf returns the verb of a request.
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

// readVerb returns the verb by which a path is read: .../api/v1/<resource> and
// .../apis/<group>/<version>/<resource> are lists, with a namespace before the resource
// or not; what is longer is one object.
func readVerb(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts { // an API server may stand below a path
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
