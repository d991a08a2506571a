package store

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/metric"
)

// Metrics records the work of a Store. Its methods must not block and must be safe for
// concurrent use.
type Metrics interface {
	// Wrote records the duration of a write, successful or not, including the wait for
	// other writes.
	Wrote(took time.Duration)
	// Committed records the number of writes of a committed transaction.
	Committed(writes int)
	// RolloutEnded is called once for each rollout whose end is stored.
	RolloutEnded(r deploy.Rollout)
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Wrote(time.Duration)         {}
func (noMetrics) Committed(int)               {}
func (noMetrics) RolloutEnded(deploy.Rollout) {}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	const subsystem = "store"
	m := &prometheusMetrics{
		write: metric.Histogram(r, subsystem, "write_duration_seconds", "Time that a write to the store took, including the wait for other writes.", metric.AnswerBuckets()),
		group: metric.Histogram(r, subsystem, "transaction_writes", "Writes that shared one committed transaction.",
			[]float64{1, 2, 4, 8, 16, 32, 64}),
		rollouts: metric.Histograms(r, "rollout", "duration_seconds",
			"Time from the start of a rollout to its end, by outcome (`complete`, `failed`, `timedout`, `superseded`, `gone`, `norollout`) and by what started it: a deployment of the `agent`, or `other`.",
			metric.WorkBuckets(), "outcome", "by"),
	}
	for _, outcome := range []deploy.RolloutPhase{deploy.RolloutComplete, deploy.RolloutFailed, deploy.RolloutTimedOut} {
		m.rollouts.WithLabelValues(outcomeLabel(outcome), startedByAgent)
	}
	return m
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct {
	write, group prometheus.Histogram
	rollouts     *prometheus.HistogramVec
}

// Values of the label "by" of rollouts.
const (
	startedByAgent = "agent"
	startedByOther = "other"
)

func outcomeLabel(p deploy.RolloutPhase) string { return strings.ToLower(string(p)) }

// Wrote implements Metrics.
func (m *prometheusMetrics) Wrote(took time.Duration) { m.write.Observe(took.Seconds()) }

// Committed implements Metrics.
func (m *prometheusMetrics) Committed(writes int) { m.group.Observe(float64(writes)) }

// RolloutEnded implements Metrics. Scalings are not counted.
func (m *prometheusMetrics) RolloutEnded(r deploy.Rollout) {
	if r.Kind == deploy.RolloutKindScaling {
		return
	}
	by := startedByAgent
	if r.External() {
		by = startedByOther
	}
	m.rollouts.WithLabelValues(outcomeLabel(r.Phase), by).Observe(max(0, r.CompletedAt.Sub(r.StartedAt)).Seconds())
}

// WaitingWriters returns the number of writes that wait for SQLite's only writer, 0 on
// PostgreSQL.
func (s *Store) WaitingWriters() int {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return len(s.group.waiting)
}
