package app

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
)

// driftMetrics implements drift.Metrics.
type driftMetrics struct {
	evaluated      map[drift.Tier]prometheus.Counter
	reads, dryRuns prometheus.Counter
	ended          *prometheus.CounterVec
	delay          prometheus.Histogram
}

func newDriftMetrics(auto promauto.Factory) *driftMetrics {
	const part = "drift"
	evaluated := counters(auto, part, "comparisons_total",
		"Comparisons of an object with Git, by tier: `0` by its metadata, `1` by reading it, `2` by a dry run, `3` by a dry run of the sweep.", "tier")
	calls := counters(auto, part, "api_calls_total",
		"Calls to API servers for comparisons with Git, by call: `get` and `dry_run`. A repeated call counts once.", "call")
	f := &driftMetrics{
		evaluated: map[drift.Tier]prometheus.Counter{}, reads: calls.WithLabelValues("get"), dryRuns: calls.WithLabelValues("dry_run"),
		ended: counters(auto, part, "periods_ended_total",
			"Periods of drift that have ended, by how: `deployed`, `reverted`, `accepted` or `abandoned`.", "end"),
		delay: histogram(auto, part, "report_delay_seconds", "Time from the watch event of a change in a cluster to the stored report.",
			[]float64{.05, .1, .2, .3, .5, 1, 2, 5, 10, 30, 60}),
	}
	for _, tier := range []drift.Tier{drift.ByMetadata, drift.ByReading, drift.ByDryRun, drift.BySweep} {
		f.evaluated[tier] = evaluated.WithLabelValues(strconv.Itoa(int(tier)))
	}
	for _, end := range []deploy.DriftEnd{deploy.DriftDeployed, deploy.DriftReverted, deploy.DriftAccepted, deploy.DriftAbandoned} {
		f.ended.WithLabelValues(endLabel(end))
	}
	return f
}

func endLabel(end deploy.DriftEnd) string { return strings.ToLower(string(end)) }

// Evaluated implements drift.Metrics.
func (f *driftMetrics) Evaluated(tier drift.Tier) { f.evaluated[tier].Inc() }

// Called implements drift.Metrics.
func (f *driftMetrics) Called(reads, dryRuns int) {
	f.reads.Add(float64(reads))
	f.dryRuns.Add(float64(dryRuns))
}

// Reported implements drift.Metrics.
func (f *driftMetrics) Reported(after time.Duration) { f.delay.Observe(max(0, after).Seconds()) }

// Ended implements drift.Metrics.
func (f *driftMetrics) Ended(end deploy.DriftEnd) { f.ended.WithLabelValues(endLabel(end)).Inc() }
