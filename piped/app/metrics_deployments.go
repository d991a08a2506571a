package app

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// deploymentFigures are those of deployments that have ended while the agent runs, and
// of their stages: taken from the transition log at the end, so that each counts once.
type deploymentFigures struct {
	ended      *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	stages     *prometheus.CounterVec
	stageTimes *prometheus.HistogramVec

	// Set before run is called.
	store   *store.Store
	changes *store.Watch
	log     *slog.Logger
}

func newDeploymentFigures(auto promauto.Factory) *deploymentFigures {
	f := &deploymentFigures{
		ended: counters(auto, "deployments", "ended_total", "Deployments that have ended, by status: `SUCCESS`, `FAILURE` or `CANCELLED`.", "status"),
		phases: histograms(auto, "deployment", "phase_duration_seconds",
			"Time that a deployment that has ended was in a status: `PENDING` (until it was planned), `PLANNED` (until it got a slot), `RUNNING` and `ROLLING_BACK`.",
			workBuckets, "status"),
		stages:     counters(auto, "stages", "ended_total", "Stages that have ended, by name, such as `K8S_SYNC`, and status.", "stage", "status"),
		stageTimes: histograms(auto, "stage", "duration_seconds", "Time that a stage ran, by name.", workBuckets, "stage"),
	}
	for _, status := range deploy.Statuses() {
		if status.Completed() {
			f.ended.WithLabelValues(string(status))
		} else {
			f.phases.WithLabelValues(string(status))
		}
	}
	return f
}

// run counts the deployments that end, until ctx ends.
func (f *deploymentFigures) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changes.C():
		}
		for _, c := range f.changes.Take() {
			if c.Status == "" || !c.Status.Completed() {
				continue
			}
			if err := f.count(ctx, c.ID); err != nil && ctx.Err() == nil {
				f.log.Warn("a deployment that has ended is missing in the metrics", "deployment", c.ID, "error", err)
			}
		}
	}
}

// count counts a deployment that has ended.
func (f *deploymentFigures) count(ctx context.Context, id string) error {
	d, err := f.store.Deployment(ctx, id)
	if err != nil {
		return err
	}
	log, err := f.store.Transitions(ctx, id)
	if err != nil {
		return err
	}
	f.ended.WithLabelValues(string(d.Status)).Inc()
	var since time.Time
	for _, t := range log {
		if t.StageID != "" {
			continue
		}
		if t.From != "" {
			f.phases.WithLabelValues(t.From).Observe(max(0, t.At.Sub(since)).Seconds())
		}
		since = t.At
	}
	for _, s := range d.Stages {
		if !s.Status.Completed() {
			continue
		}
		f.stages.WithLabelValues(s.Name, string(s.Status)).Inc()
		if !s.StartedAt.IsZero() {
			f.stageTimes.WithLabelValues(s.Name).Observe(max(0, s.CompletedAt.Sub(s.StartedAt)).Seconds())
		}
	}
	return nil
}

// rolloutFigures are those of rollouts. They implement the executors' and the store's
// observers.
type rolloutFigures struct {
	duration *prometheus.HistogramVec
	marked   prometheus.Histogram
}

func newRolloutFigures(auto promauto.Factory) *rolloutFigures {
	f := &rolloutFigures{
		duration: histograms(auto, "rollout", "duration_seconds",
			"Time from the start of a rollout to its end, by outcome (`complete`, `failed`, `timedout`, `superseded`, `gone`, `norollout`) and by what started it: a deployment of the `agent`, or `other`.",
			workBuckets, "outcome", "by"),
		marked: histogram(auto, "rollout", "mark_delay_seconds",
			"Time from the watch event that completed a rollout to the stored end.", []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}),
	}
	for _, outcome := range []deploy.RolloutPhase{deploy.RolloutComplete, deploy.RolloutFailed, deploy.RolloutTimedOut} {
		f.duration.WithLabelValues(outcomeLabel(outcome), byAgent)
	}
	return f
}

// Who began a rollout.
const (
	byAgent = "agent"
	byOther = "other"
)

// RolloutEnded implements store.Observer. What an autoscaler does is no rollout.
func (f *rolloutFigures) RolloutEnded(r deploy.Rollout) {
	if r.Kind == deploy.RolloutKindScaling {
		return
	}
	by := byAgent
	if r.External() {
		by = byOther
	}
	f.duration.WithLabelValues(outcomeLabel(r.Phase), by).Observe(max(0, r.CompletedAt.Sub(r.StartedAt)).Seconds())
}

// Marked implements the executors' Observer.
func (f *rolloutFigures) Marked(after time.Duration) { f.marked.Observe(max(0, after).Seconds()) }

func outcomeLabel(p deploy.RolloutPhase) string { return strings.ToLower(string(p)) }
