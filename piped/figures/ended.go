package figures

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/metric"
	"github.com/c785c783/piped/piped/store"
)

// EndedMetrics counts the deployments that end while the agent runs, and their stages, without
// those of previews of pull requests.
// They are read from the transition log when the deployment ends, so that each is counted
// once.
type EndedMetrics struct {
	ended      *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	stages     *prometheus.CounterVec
	stageTimes *prometheus.HistogramVec
}

// NewEndedMetrics returns EndedMetrics that are registered with Prometheus.
func NewEndedMetrics(r prometheus.Registerer) *EndedMetrics {
	m := &EndedMetrics{
		ended: metric.Counters(r, "deployments", "ended_total", "Deployments that have ended, without previews of pull requests, by status: `SUCCESS`, `FAILURE` or `CANCELLED`.", "status"),
		phases: metric.Histograms(r, "deployment", "phase_duration_seconds",
			"Time that a deployment that has ended was in a status: `PENDING` (until it was planned), `PLANNED` (until it got a slot), `RUNNING` and `ROLLING_BACK`.",
			metric.WorkBuckets(), "status"),
		stages:     metric.Counters(r, "stages", "ended_total", "Stages that have ended, by name, such as `K8S_SYNC`, and status.", "stage", "status"),
		stageTimes: metric.Histograms(r, "stage", "duration_seconds", "Time that a stage ran, by name.", metric.WorkBuckets(), "stage"),
	}
	for _, status := range deploy.Statuses() {
		if status.Completed() {
			m.ended.WithLabelValues(string(status))
		} else {
			m.phases.WithLabelValues(string(status))
		}
	}
	return m
}

// EndedCounter counts the deployments of a store that end from its creation on.
type EndedCounter struct {
	metrics *EndedMetrics
	store   *store.Store
	changes *store.Watch
	log     *slog.Logger
}

// Count returns an EndedCounter for a store. The caller runs and closes it.
func (m *EndedMetrics) Count(st *store.Store, log *slog.Logger) *EndedCounter {
	return &EndedCounter{metrics: m, store: st, changes: st.Watch(deploy.TopicDeployment), log: log}
}

// Close ends the watch of the store. It returns nil.
func (c *EndedCounter) Close() error {
	c.changes.Close()
	return nil
}

// Run records each deployment that ends, and its stages, in the metrics until ctx ends.
// A deployment that cannot be read is logged and left out.
func (c *EndedCounter) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changes.C():
		}
		for _, change := range c.changes.Take() {
			if change.Status == "" || !change.Status.Completed() {
				continue
			}
			if err := c.count(ctx, change.ID); err != nil && ctx.Err() == nil {
				c.log.Warn("cannot count a completed deployment in the metrics", "deployment", change.ID, "error", err)
			}
		}
	}
}

// count records a deployment that has ended.
func (c *EndedCounter) count(ctx context.Context, id string) error {
	d, err := c.store.Deployment(ctx, id)
	if err != nil || d.Git.PullRequest != 0 {
		return err
	}
	log, err := c.store.Transitions(ctx, id)
	if err != nil {
		return err
	}
	c.metrics.ended.WithLabelValues(string(d.Status)).Inc()
	var since time.Time
	for _, t := range log {
		if t.StageID != "" {
			continue
		}
		if t.From != "" {
			c.metrics.phases.WithLabelValues(t.From).Observe(max(0, t.At.Sub(since)).Seconds())
		}
		since = t.At
	}
	for _, s := range d.Stages {
		if !s.Status.Completed() {
			continue
		}
		c.metrics.stages.WithLabelValues(s.Name, string(s.Status)).Inc()
		if !s.StartedAt.IsZero() {
			c.metrics.stageTimes.WithLabelValues(s.Name).Observe(max(0, s.CompletedAt.Sub(s.StartedAt)).Seconds())
		}
	}
	return nil
}
