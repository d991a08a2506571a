package retention

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// Metrics counts deleted deployments.
type Metrics interface {
	Removed(deployments int)
}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	return prometheusMetrics{metric.Counters(r, "retention", "removed_deployments_total",
		"Deployments that retention has removed.").WithLabelValues()}
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct{ deployments prometheus.Counter }

// Removed implements Metrics.
func (m prometheusMetrics) Removed(deployments int) { m.deployments.Add(float64(deployments)) }
