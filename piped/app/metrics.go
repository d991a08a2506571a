package app

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/metric"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/pullpreview"
	"github.com/c785c783/piped/piped/retention"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web"
)

// maxScrapes bounds concurrent scrapes.
const maxScrapes = 4

// metrics is the agent's own Prometheus registry with the metrics of all packages.
type metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger

	counted
}

// counted are the metrics that packages record while they work. Each package declares its
// own.
type counted struct {
	drift         drift.Metrics
	store         store.Metrics
	git           git.Metrics
	requests      *cluster.RequestMetrics
	calls         control.Metrics
	webhooks      web.DeliveryMetrics
	queries       *provider.QueryMetrics
	ended         *figures.EndedMetrics
	stages        kubernetes.Metrics
	notifications notify.Metrics
	retention     retention.Metrics
	previews      pullpreview.Metrics
}

func newCounted(r prometheus.Registerer) counted {
	return counted{
		drift: drift.NewMetrics(r), store: store.NewMetrics(r), git: git.NewMetrics(r), requests: cluster.NewRequestMetrics(r),
		calls: control.NewMetrics(r), webhooks: web.NewMetrics(r), queries: provider.NewQueryMetrics(r), ended: figures.NewEndedMetrics(r),
		stages: kubernetes.NewMetrics(r), notifications: notify.NewMetrics(r), retention: retention.NewMetrics(r), previews: pullpreview.NewMetrics(r),
	}
}

func newMetrics(log *slog.Logger) *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
	)
	return &metrics{registry: registry, log: log, counted: newCounted(registry)}
}

// collect registers the metrics that are read during a scrape, from the store and from l.
// The caller closes the returned collector.
func (m *metrics) collect(st *store.Store, l *live, now func() time.Time) *figures.Stored {
	stored := figures.NewStored(st, now)
	m.registry.MustRegister(stored, liveMetrics{l}, pullpreview.Active(st))
	return stored
}

// handler serves scrapes. Metrics that cannot be collected are omitted and logged.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{m.log},
		MaxRequestsInFlight: maxScrapes, Timeout: 2 * metric.ScrapeTimeout,
	})
}

// scrapeLog logs the errors of scrapes.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) { l.log.Warn("cannot collect metrics", "error", v) }
