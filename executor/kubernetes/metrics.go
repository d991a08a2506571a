package kubernetes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// Metrics records the work of the stages. Its method must not block and must be safe for
// concurrent use.
type Metrics interface {
	// Marked records the time from the watch event that completed a rollout to the stored
	// end.
	Marked(after time.Duration)
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Marked(time.Duration) {}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	return prometheusMetrics{metric.Histogram(r, "rollout", "mark_delay_seconds",
		"Time from the watch event that completed a rollout to the stored end.", []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5})}
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct{ marked prometheus.Histogram }

// Marked implements Metrics.
func (m prometheusMetrics) Marked(after time.Duration) { m.marked.Observe(max(0, after).Seconds()) }
