package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/c785c783/piped/executor/analysis/provider"
)

// analysisFigures are those of the questions that analyses ask.
type analysisFigures struct {
	queries  *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newAnalysisFigures(auto promauto.Factory) *analysisFigures {
	const part = "analysis"
	return &analysisFigures{
		queries:  counters(auto, part, "queries_total", "Queries of analyses, by provider and result: `ok` or `error`.", "provider", "result"),
		duration: histograms(auto, part, "query_duration_seconds", "Time that an analysis provider took to answer a query.", answerBuckets, "provider"),
	}
}

func (f *analysisFigures) asked(ctx context.Context, provider string, began time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return // nobody waits for the answer any more
	}
	f.queries.WithLabelValues(provider, resultOf(err)).Inc()
	f.duration.WithLabelValues(provider).Observe(time.Since(began).Seconds())
}

// countedProviders are the providers of analyses whose answers are counted. They
// implement analysis.Providers.
type countedProviders struct {
	set     *provider.Set
	figures *analysisFigures
}

// Metrics implements analysis.Providers.
func (p countedProviders) Metrics(name string) (provider.Metrics, error) {
	of, err := p.set.Metrics(name)
	if err != nil {
		return nil, err
	}
	return countedMetrics{of, name, p.figures}, nil
}

// Logs implements analysis.Providers.
func (p countedProviders) Logs(name string) (provider.Logs, error) {
	of, err := p.set.Logs(name)
	if err != nil {
		return nil, err
	}
	return countedLogs{of, name, p.figures}, nil
}

type countedMetrics struct {
	provider.Metrics
	name    string
	figures *analysisFigures
}

// Query implements provider.Metrics.
func (m countedMetrics) Query(ctx context.Context, query string, over provider.Window) (provider.Numbers, error) {
	began := time.Now()
	found, err := m.Metrics.Query(ctx, query, over)
	m.figures.asked(ctx, m.name, began, err)
	return found, err
}

type countedLogs struct {
	provider.Logs
	name    string
	figures *analysisFigures
}

// Find implements provider.Logs.
func (l countedLogs) Find(ctx context.Context, query string, over provider.Window) (provider.Lines, error) {
	began := time.Now()
	found, err := l.Logs.Find(ctx, query, over)
	l.figures.asked(ctx, l.name, began, err)
	return found, err
}
