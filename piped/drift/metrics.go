package drift

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/metric"
)

// Tier is the method by which an object was evaluated, in the order of its cost.
type Tier int

// The tiers.
const (
	ByMetadata Tier = iota // watched metadata
	ByReading              // a read of the object
	ByDryRun               // a read and a server-side dry run
	BySweep                // like ByDryRun, by the periodic sweep
)

// Metrics records the work of a Detector. Its methods must not block and must be safe
// for concurrent use.
type Metrics interface {
	// Evaluated counts an evaluated object.
	Evaluated(Tier)
	// Called counts calls to an API server, without retries.
	Called(reads, dryRuns int)
	// Reported records the time from a change in a cluster to its stored report.
	Reported(after time.Duration)
	// Ended counts the end of a period of drift.
	Ended(deploy.DriftEnd)
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Evaluated(Tier)         {}
func (noMetrics) Called(int, int)        {}
func (noMetrics) Reported(time.Duration) {}
func (noMetrics) Ended(deploy.DriftEnd)  {}

// countComparison updates the metrics after a comparison of one object.
func (e *evaluation) countComparison(s suspect, c apply.Compared) {
	dryRuns, tier := 0, ByReading
	if c.DryRun {
		dryRuns, tier = 1, ByDryRun
	}
	if c.DryRun && s.confirm {
		tier = BySweep
	}
	e.Metrics.Called(1, dryRuns)
	if c.Problem == "" {
		e.Metrics.Evaluated(tier)
	}
}

// countReport updates the metrics after a report was stored.
func (e *evaluation) countReport(r deploy.DriftReport) {
	if !e.since.IsZero() {
		e.Metrics.Reported(e.Now().Sub(e.since))
	}
	if r.End != "" {
		e.Metrics.Ended(r.End)
	}
}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	const subsystem = "drift"
	evaluated := metric.Counters(r, subsystem, "comparisons_total",
		"Comparisons of an object with Git, by tier: `0` by its metadata, `1` by reading it, `2` by a dry run, `3` by a dry run of the sweep.", "tier")
	calls := metric.Counters(r, subsystem, "api_calls_total",
		"Calls to API servers for comparisons with Git, by call: `get` and `dry_run`. A repeated call counts once.", "call")
	m := &prometheusMetrics{
		evaluated: map[Tier]prometheus.Counter{}, reads: calls.WithLabelValues("get"), dryRuns: calls.WithLabelValues("dry_run"),
		ended: metric.Counters(r, subsystem, "periods_ended_total",
			"Periods of drift that have ended, by how: `deployed`, `reverted`, `accepted` or `abandoned`.", "end"),
		delay: metric.Histogram(r, subsystem, "report_delay_seconds", "Time from the watch event of a change in a cluster to the stored report.",
			[]float64{.05, .1, .2, .3, .5, 1, 2, 5, 10, 30, 60}),
	}
	for _, tier := range []Tier{ByMetadata, ByReading, ByDryRun, BySweep} {
		m.evaluated[tier] = evaluated.WithLabelValues(strconv.Itoa(int(tier)))
	}
	for _, end := range []deploy.DriftEnd{deploy.DriftDeployed, deploy.DriftReverted, deploy.DriftAccepted, deploy.DriftAbandoned} {
		m.ended.WithLabelValues(endLabel(end))
	}
	return m
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct {
	evaluated      map[Tier]prometheus.Counter
	reads, dryRuns prometheus.Counter
	ended          *prometheus.CounterVec
	delay          prometheus.Histogram
}

func endLabel(end deploy.DriftEnd) string { return strings.ToLower(string(end)) }

// Evaluated implements Metrics.
func (m *prometheusMetrics) Evaluated(tier Tier) { m.evaluated[tier].Inc() }

// Called implements Metrics.
func (m *prometheusMetrics) Called(reads, dryRuns int) {
	m.reads.Add(float64(reads))
	m.dryRuns.Add(float64(dryRuns))
}

// Reported implements Metrics.
func (m *prometheusMetrics) Reported(after time.Duration) { m.delay.Observe(max(0, after).Seconds()) }

// Ended implements Metrics.
func (m *prometheusMetrics) Ended(end deploy.DriftEnd) { m.ended.WithLabelValues(endLabel(end)).Inc() }
