package git

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// Operation is a kind of request to a remote.
type Operation string

// The operations.
const (
	ListRefs Operation = "ls_remote" // list the branches and tags
	Fetch    Operation = "fetch"     // receive the objects of a commit
	Push     Operation = "push"
)

// Operations lists every operation.
func Operations() []Operation { return []Operation{ListRefs, Fetch, Push} }

// Metrics records requests to remotes. Its method must not block and must be safe for
// concurrent use.
type Metrics interface {
	// Asked records the result and the duration of an operation, including the connection
	// setup. Operations cancelled by the caller are not recorded.
	Asked(op Operation, took time.Duration, err error)
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Asked(Operation, time.Duration, error) {}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	const subsystem = "git"
	m := &prometheusMetrics{
		operations: metric.Counters(r, subsystem, "operations_total", "Operations on Git remotes, by operation (`ls_remote`, `fetch`, `push`) and result (`ok`, `error`).", "operation", "result"),
		duration:   metric.Histograms(r, subsystem, "operation_duration_seconds", "Time that an operation on a Git remote took, by operation.", metric.AnswerBuckets(), "operation"),
	}
	for _, op := range Operations() {
		m.operations.WithLabelValues(string(op), metric.OK)
		m.operations.WithLabelValues(string(op), metric.Error)
		m.duration.WithLabelValues(string(op))
	}
	return m
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct {
	operations *prometheus.CounterVec
	duration   *prometheus.HistogramVec
}

// Asked implements Metrics.
func (m *prometheusMetrics) Asked(op Operation, took time.Duration, err error) {
	m.operations.WithLabelValues(string(op), metric.Result(err)).Inc()
	m.duration.WithLabelValues(string(op)).Observe(took.Seconds())
}

// measure starts the measurement of an operation. The caller calls the returned function at
// its end. Durations are measured with the system clock, not with Config.Now.
func measure(m Metrics, op Operation) (end func(w *watchdog, err error)) {
	began := time.Now()
	return func(w *watchdog, err error) {
		if err != nil && w.abandoned() {
			return
		}
		m.Asked(op, time.Since(began), err)
	}
}
