package pullpreview

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/metric"
	"github.com/c785c783/piped/piped/store"
)

// Metrics records what becomes of previews. Its methods must not block.
type Metrics interface {
	// Ready records the time from the first sight of a head to its ready preview.
	Ready(after time.Duration)
	// Failed counts a preview that fails.
	Failed()
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Ready(time.Duration) {}
func (noMetrics) Failed()             {}

// NewMetrics returns Metrics that are registered with Prometheus.
func NewMetrics(r prometheus.Registerer) Metrics {
	const subsystem = "previews"
	return &prometheusMetrics{
		ready: metric.Histogram(r, subsystem, "ready_seconds",
			"Time from the moment at which a new commit of a pull request was seen to its ready preview.", metric.WorkBuckets()),
		failed: metric.Counters(r, subsystem, "failed_total", "Previews of pull requests that became failed.").WithLabelValues(),
	}
}

// prometheusMetrics implements Metrics.
type prometheusMetrics struct {
	ready  prometheus.Histogram
	failed prometheus.Counter
}

// Ready implements Metrics.
func (m *prometheusMetrics) Ready(after time.Duration) { m.ready.Observe(max(0, after).Seconds()) }

// Failed implements Metrics.
func (m *prometheusMetrics) Failed() { m.failed.Inc() }

var activeDesc = metric.Desc("previews", "Previews of open pull requests, by phase: `waiting` for a limit, `building`, `ready`, `failed`, or `removed` until the next commit.", "phase")

// active collects the number of previews from the store during a scrape.
type active struct{ store *store.Store }

// Active returns the collector of the number of previews.
func Active(st *store.Store) prometheus.Collector { return active{st} }

// Describe implements prometheus.Collector.
func (a active) Describe(out chan<- *prometheus.Desc) { out <- activeDesc }

// Collect implements prometheus.Collector.
func (a active) Collect(out chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(context.Background(), metric.ScrapeTimeout)
	defer done()
	list, err := a.store.PullPreviews(ctx, "", 0)
	if err != nil {
		out <- prometheus.NewInvalidMetric(activeDesc, err)
		return
	}
	count := map[deploy.PullPreviewPhase]int{}
	for _, p := range list {
		count[p.Phase]++
	}
	for _, phase := range deploy.PullPreviewPhases() {
		metric.Gauge(out, activeDesc, float64(count[phase]), strings.ToLower(string(phase)))
	}
}
