package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// Metrics counts calls. Its method must be fast and safe for concurrent use.
type Metrics interface {
	// Called records the end of a call. method is a served method such as
	// piped.control.v1.ControlService/GetStatus; code is a gRPC code such as NotFound. For a
	// stream, took is how long it was open.
	Called(method, code string, stream bool, took time.Duration)
}

// noMetrics discards the counts.
type noMetrics struct{}

func (noMetrics) Called(string, string, bool, time.Duration) {}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	const subsystem = "grpc"
	return &prometheusMetrics{
		requests: metric.Counters(r, subsystem, "requests_total", "Calls of the control API that have ended, by method and gRPC code.", "method", "code"),
		duration: metric.Histograms(r, subsystem, "request_duration_seconds", "Time that a call of the control API took, by method. Streams are left out.", metric.AnswerBuckets(), "method"),
	}
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// Called implements Metrics.
func (m *prometheusMetrics) Called(method, code string, stream bool, took time.Duration) {
	m.requests.WithLabelValues(method, code).Inc()
	if !stream {
		m.duration.WithLabelValues(method).Observe(max(0, took).Seconds())
	}
}
