package provider

import (
	"context"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

// QueryMetrics counts the queries to analysis providers.
type QueryMetrics struct {
	queries  *prom.CounterVec
	duration *prom.HistogramVec
}

// NewQueryMetrics returns QueryMetrics that are registered with Prometheus.
func NewQueryMetrics(r prom.Registerer) *QueryMetrics {
	const subsystem = "analysis"
	return &QueryMetrics{
		queries:  metric.Counters(r, subsystem, "queries_total", "Queries of analyses, by provider and result: `ok` or `error`.", "provider", "result"),
		duration: metric.Histograms(r, subsystem, "query_duration_seconds", "Time that an analysis provider took to answer a query.", metric.AnswerBuckets(), "provider"),
	}
}

// Queried records the result and the duration of a query that has just ended with err.
// Cancelled queries are not recorded.
func (m *QueryMetrics) Queried(ctx context.Context, provider string, began time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	m.queries.WithLabelValues(provider, metric.Result(err)).Inc()
	m.duration.WithLabelValues(provider).Observe(time.Since(began).Seconds())
}

// Counted is a Set whose queries are recorded. It implements analysis.Providers.
type Counted struct {
	Set     *Set
	Queries *QueryMetrics
}

// Metrics returns the provider of that name, or an error of kind deploy.Invalid.
func (c Counted) Metrics(name string) (Metrics, error) {
	of, err := c.Set.Metrics(name)
	if err != nil {
		return nil, err
	}
	return countedMetrics{of, name, c.Queries}, nil
}

// Logs returns the provider of that name, or an error of kind deploy.Invalid.
func (c Counted) Logs(name string) (Logs, error) {
	of, err := c.Set.Logs(name)
	if err != nil {
		return nil, err
	}
	return countedLogs{of, name, c.Queries}, nil
}

type countedMetrics struct {
	Metrics
	name    string
	queries *QueryMetrics
}

// Query implements Metrics.
func (m countedMetrics) Query(ctx context.Context, query string, over Window) (Numbers, error) {
	began := time.Now()
	found, err := m.Metrics.Query(ctx, query, over)
	m.queries.Queried(ctx, m.name, began, err)
	return found, err
}

type countedLogs struct {
	Logs
	name    string
	queries *QueryMetrics
}

// Find implements Logs.
func (l countedLogs) Find(ctx context.Context, query string, over Window) (Lines, error) {
	began := time.Now()
	found, err := l.Logs.Find(ctx, query, over)
	l.queries.Queried(ctx, l.name, began, err)
	return found, err
}
