// Package metric builds the agent's Prometheus metrics: names with the common prefix,
// shared buckets and labels. A metric itself is declared in the package that changes it.
//
// Labels take their values from fixed lists and from the names that the configuration
// gives to repositories, clusters, webhooks, receivers and providers, never from the
// content of a repository. That bounds the number of time series. The exceptions are documented
// in docs/reference/metrics.md.
package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// prefix begins the name of every metric of the agent.
const prefix = "piped"

// ScrapeTimeout bounds the time of a collector that reads values during a scrape.
const ScrapeTimeout = 5 * time.Second

// Values of the label result.
const (
	OK    = "ok"
	Error = "error"
)

// Result returns the label value for an operation that ended with err.
func Result(err error) string {
	if err != nil {
		return Error
	}
	return OK
}

// AnswerBuckets returns histogram buckets for response times, in seconds.
func AnswerBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
}

// WorkBuckets returns histogram buckets for work that can take hours, in seconds.
func WorkBuckets() []float64 {
	return []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600}
}

// Counters registers counters of a subsystem.
func Counters(r prometheus.Registerer, subsystem, name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Namespace: prefix, Subsystem: subsystem, Name: name, Help: help}, labels)
}

// Histograms registers histograms of a subsystem.
func Histograms(r prometheus.Registerer, subsystem, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Namespace: prefix, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, labels)
}

// Histogram registers a histogram without labels.
func Histogram(r prometheus.Registerer, subsystem, name, help string, buckets []float64) prometheus.Histogram {
	return promauto.With(r).NewHistogram(prometheus.HistogramOpts{Namespace: prefix, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets})
}

// Desc describes a gauge or a counter whose values a collector reads during a scrape.
func Desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+"_"+name, help, labels, nil)
}

// Gauge sends the value of a gauge.
func Gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// Counter sends the value of a counter that is read during a scrape.
func Counter(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

// Age returns the seconds from a time until now, 0 for the zero time.
func Age(since, now time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since)).Seconds()
}
