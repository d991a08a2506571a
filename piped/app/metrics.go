package app

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/store"
)

// Limits of what a scrape may take.
const (
	scrapeTimeout  = 5 * time.Second
	scrapesAtOnce  = 4
	metricsPrefix  = "piped"
	driftSubsystem = "drift"
)

// metrics are the agent's figures for Prometheus, in a registry of their own. No
// label takes its values from what people write: their number does not grow. What is
// counted as it happens is told by the parts through the small interfaces that they
// declare; what is so at a moment is read from the store when it is asked for.
type metrics struct {
	registry *prometheus.Registry
	stored   *storedFigures
	log      *slog.Logger

	judged         map[drift.Tier]prometheus.Counter
	reads, dryRuns prometheus.Counter
	ended          *prometheus.CounterVec
	delay          prometheus.Histogram
}

func newMetrics(st *store.Store, log *slog.Logger) *metrics {
	registry, stored := prometheus.NewRegistry(), &storedFigures{store: st, changes: st.Watch(deploy.TopicDrift)}
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
		stored,
	)
	auto := promauto.With(registry)
	judged := auto.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricsPrefix, Subsystem: driftSubsystem, Name: "comparisons_total",
		Help: "Judgements on whether an object is as in Git, by tier: 0 by its metadata, 1 by reading it, 2 by a dry run, 3 by a dry run of the sweep.",
	}, []string{"tier"})
	calls := auto.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricsPrefix, Subsystem: driftSubsystem, Name: "api_calls_total",
		Help: "Calls to API servers to find out whether objects are as in Git; those that were repeated count once.",
	}, []string{"call"})
	m := &metrics{
		registry: registry, stored: stored, log: log,
		judged: map[drift.Tier]prometheus.Counter{}, reads: calls.WithLabelValues("get"), dryRuns: calls.WithLabelValues("dry_run"),
		ended: auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsPrefix, Subsystem: driftSubsystem, Name: "periods_ended_total",
			Help: "Periods of drift that have ended, by how: deployed, reverted, accepted or abandoned.",
		}, []string{"end"}),
		delay: auto.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricsPrefix, Subsystem: driftSubsystem, Name: "report_delay_seconds",
			Help:    "Time from hearing of a change in a cluster to the stored report on it.",
			Buckets: []float64{.05, .1, .2, .3, .5, 1, 2, 5, 10, 30, 60},
		}),
	}
	for _, tier := range []drift.Tier{drift.ByMetadata, drift.ByReading, drift.ByDryRun, drift.BySweep} {
		m.judged[tier] = judged.WithLabelValues(strconv.Itoa(int(tier)))
	}
	for _, end := range []deploy.DriftEnd{deploy.DriftDeployed, deploy.DriftReverted, deploy.DriftAccepted, deploy.DriftAbandoned} {
		m.ended.WithLabelValues(endLabel(end))
	}
	return m
}

func endLabel(end deploy.DriftEnd) string { return strings.ToLower(string(end)) }

// close ends what the figures follow.
func (m *metrics) close() error {
	m.stored.changes.Close()
	return nil
}

// handler answers scrapes. What cannot be read is left out of an answer.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{m.log},
		MaxRequestsInFlight: scrapesAtOnce, Timeout: 2 * scrapeTimeout,
	})
}

// scrapeLog tells of scrapes that fail.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) { l.log.Warn("metrics cannot be told", "error", v) }

// Judged implements drift.Observer.
func (m *metrics) Judged(tier drift.Tier) { m.judged[tier].Inc() }

// Asked implements drift.Observer.
func (m *metrics) Asked(reads, dryRuns int) {
	m.reads.Add(float64(reads))
	m.dryRuns.Add(float64(dryRuns))
}

// Reported implements drift.Observer.
func (m *metrics) Reported(after time.Duration) { m.delay.Observe(max(0, after).Seconds()) }

// Ended implements drift.Observer.
func (m *metrics) Ended(end deploy.DriftEnd) {
	m.ended.WithLabelValues(endLabel(end)).Inc()
}

var (
	applicationsDesc = prometheus.NewDesc("piped_applications",
		"Enabled applications by sync status.", []string{"sync_status"}, nil)
	driftedDesc = prometheus.NewDesc("piped_drifted_objects",
		"Objects that differ from Git, by how: missing, changed or extra.", []string{"drift"}, nil)
)

// storedFigures are read from the store when they are asked for; those of drift only
// if it has changed since.
type storedFigures struct {
	store   *store.Store
	changes *store.Watch

	mu      sync.Mutex
	drifted map[deploy.DriftKind]int // nil: to be read
}

// Describe implements prometheus.Collector.
func (f *storedFigures) Describe(out chan<- *prometheus.Desc) {
	out <- applicationsDesc
	out <- driftedDesc
}

// Collect implements prometheus.Collector, which is given no context.
func (f *storedFigures) Collect(out chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(context.Background(), scrapeTimeout)
	defer done()
	states, err := f.store.SyncStates(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(applicationsDesc, err)
	} else {
		for _, s := range deploy.SyncStatuses() {
			out <- prometheus.MustNewConstMetric(applicationsDesc, prometheus.GaugeValue, float64(states[s]), string(s))
		}
	}
	drifted, err := f.countDrift(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(driftedDesc, err)
		return
	}
	for _, kind := range []deploy.DriftKind{deploy.DriftMissing, deploy.DriftChanged, deploy.DriftExtra} {
		out <- prometheus.MustNewConstMetric(driftedDesc, prometheus.GaugeValue, float64(drifted[kind]), strings.ToLower(string(kind)))
	}
}

// countDrift returns how many objects differ from Git.
func (f *storedFigures) countDrift(ctx context.Context) (map[deploy.DriftKind]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.changes.C():
		f.changes.Take()
		f.drifted = nil
	default:
	}
	if f.drifted != nil {
		return f.drifted, nil
	}
	reports, _, err := f.store.ListDriftReports(ctx, store.DriftQuery{OpenOnly: true})
	if err != nil {
		return nil, err
	}
	f.drifted = map[deploy.DriftKind]int{}
	for _, r := range reports {
		for _, o := range r.Objects {
			f.drifted[o.Kind]++
		}
	}
	return f.drifted, nil
}
