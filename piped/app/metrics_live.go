package app

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/metric"
)

var (
	clusterDesc    = metric.Desc("cluster_reachable", "1 if the last request to a cluster was answered, else 0. Absent before the first request.", "cluster")
	repositoryDesc = metric.Desc("repository_reachable", "1 if a repository can be watched and its last check succeeded, else 0. Absent before the first check, and where another replica watches it.", "repo")
	refusedDesc    = metric.Desc("configuration_refused", "1 while a newer configuration than the one in effect is refused, else 0.")
)

// liveMetrics collects gauges from memory. They stay in this package because they join the
// state of clusters, repositories and configuration, which only live connects.
type liveMetrics struct{ live *live }

// Describe implements prometheus.Collector.
func (f liveMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{clusterDesc, repositoryDesc, refusedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f liveMetrics) Collect(out chan<- prometheus.Metric) {
	for name, reachable := range f.live.clusters.reachable() {
		metric.Gauge(out, clusterDesc, boolean(reachable), name)
	}
	for id, reachable := range f.live.repositories.reachable(f.live.follower.Watches) {
		metric.Gauge(out, repositoryDesc, boolean(reachable), id)
	}
	_, refused := f.live.configuration.get()
	metric.Gauge(out, refusedDesc, boolean(refused != ""))
}

// boolean returns the value of a gauge that is 1 or 0.
func boolean(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// reachable reports by name whether the last request to a configured cluster was answered.
// Clusters without a request are absent.
func (c *clusters) reachable() map[string]bool {
	c.mu.Lock()
	configured := maps.Clone(c.configured)
	c.mu.Unlock()
	out := map[string]bool{}
	for name, conn := range configured {
		if conn.problem != nil {
			out[name] = false
			continue
		}
		if contact := conn.cluster.Contact(); contact.Answered || contact.Err != nil {
			out[name] = contact.Answered
		}
	}
	return out
}

// reachable reports by ID whether the last check of a configured repository succeeded.
// Repositories that were not checked yet, or that another replica watches, are absent.
func (r *repositories) reachable(watched func(repoID string) bool) map[string]bool {
	r.mu.Lock()
	configured := r.configured
	r.mu.Unlock()
	out := map[string]bool{}
	for _, c := range configured {
		if c.problem != nil {
			out[c.config.RepoID] = false
			continue
		}
		if state := c.mirror.State(); watched(c.config.RepoID) && (state.Err != nil || !state.CheckedAt.IsZero()) {
			out[c.config.RepoID] = state.Err == nil
		}
	}
	return out
}
