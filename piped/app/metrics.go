package app

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Limits of what a scrape may take.
const (
	scrapeTimeout = 5 * time.Second
	scrapesAtOnce = 4
)

// metricsPrefix begins the name of every figure of the agent's own.
const metricsPrefix = "piped"

// Results of what is asked of others.
const (
	resultOK    = "ok"
	resultError = "error"
)

// Buckets of durations, in seconds: of answers, and of work that may take hours.
var (
	answerBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	workBuckets   = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600}
)

// metrics are the agent's figures for Prometheus, in a registry of their own. Labels
// take their values from the agent's own words, and from the names that its
// configuration gives to repositories, clusters, webhooks, receivers and providers; never
// from what people write into Git. So their number does not grow.
//
// What is counted as it happens is told by the parts, through the small interfaces that
// they declare; what is so at a moment is read when it is asked for.
type metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger

	drift       *driftMetrics
	store       *storeFigures
	git         *gitFigures
	kubernetes  *kubernetesFigures
	calls       *callFigures
	webhooks    *webhookFigures
	analyses    *analysisFigures
	deployments *deploymentFigures
	rollouts    *rolloutFigures
	told        *notificationFigures
	retention   *retentionFigures

	stored *storedFigures // nil until follow, as is live
	live   *live
}

func newMetrics(log *slog.Logger) *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
	)
	m := newFigures(registry)
	m.registry, m.log = registry, log
	return m
}

// newFigures registers what is counted as it happens.
func newFigures(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	rollouts := newRolloutFigures(auto)
	return &metrics{
		drift: newDriftMetrics(auto), store: newStoreFigures(auto, rollouts), git: newGitFigures(auto), kubernetes: newKubernetesFigures(auto),
		calls: newCallFigures(auto), webhooks: newWebhookFigures(auto), analyses: newAnalysisFigures(auto),
		deployments: newDeploymentFigures(auto), rollouts: rollouts, told: newNotificationFigures(auto), retention: newRetentionFigures(auto),
	}
}

// follow adds what is read from the store and from the parts when it is asked for, and
// the deployments that end from now on. It is called once.
func (m *metrics) follow(st *store.Store, l *live, now func() time.Time) {
	m.stored, m.live = &storedFigures{store: st, changes: st.Watch(deploy.TopicDrift), now: now}, l
	m.registry.MustRegister(m.stored, liveFigures{l})
	m.deployments.store, m.deployments.changes, m.deployments.log = st, st.Watch(deploy.TopicDeployment), m.log
}

// close ends what the figures follow.
func (m *metrics) close() error {
	m.stored.changes.Close()
	m.deployments.changes.Close()
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

// counters are of one part of the agent, the subsystem.
func counters(auto promauto.Factory, subsystem, name, help string, labels ...string) *prometheus.CounterVec {
	return auto.NewCounterVec(prometheus.CounterOpts{Namespace: metricsPrefix, Subsystem: subsystem, Name: name, Help: help}, labels)
}

func histograms(auto promauto.Factory, subsystem, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return auto.NewHistogramVec(prometheus.HistogramOpts{Namespace: metricsPrefix, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, labels)
}

func histogram(auto promauto.Factory, subsystem, name, help string, buckets []float64) prometheus.Histogram {
	return auto.NewHistogram(prometheus.HistogramOpts{Namespace: metricsPrefix, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets})
}

// resultOf returns the label for how something went.
func resultOf(err error) string {
	if err != nil {
		return resultError
	}
	return resultOK
}
