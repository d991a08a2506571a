package app

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	clusterDesc    = describe("cluster_reachable", "1 if the last request to a cluster was answered, else 0. Absent before the first request.", "cluster")
	repositoryDesc = describe("repository_reachable", "1 if a repository can be watched and its last check succeeded, else 0. Absent before the first check.", "repo")
	refusedDesc    = describe("configuration_refused", "1 while a newer configuration than the one in effect is refused, else 0.")
)

// liveFigures are what the parts know at the moment. Nobody is asked for them.
type liveFigures struct{ live *live }

// Describe implements prometheus.Collector.
func (f liveFigures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{clusterDesc, repositoryDesc, refusedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f liveFigures) Collect(out chan<- prometheus.Metric) {
	for name, reachable := range f.live.clusters.reachable() {
		gauge(out, clusterDesc, truth(reachable), name)
	}
	for id, reachable := range f.live.repositories.reachable() {
		gauge(out, repositoryDesc, truth(reachable), id)
	}
	_, refused := f.live.configuration.get()
	gauge(out, refusedDesc, truth(refused != ""))
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// reachable tells of the configured clusters that were asked for something, by name,
// whether they answered last.
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

// reachable tells of the configured repositories that were looked at, by ID, whether
// that succeeded last.
func (r *repositories) reachable() map[string]bool {
	r.mu.Lock()
	configured := r.configured
	r.mu.Unlock()
	out := map[string]bool{}
	for _, c := range configured {
		if c.problem != nil {
			out[c.config.RepoID] = false
			continue
		}
		if state := c.mirror.State(); state.Err != nil || !state.CheckedAt.IsZero() {
			out[c.config.RepoID] = state.Err == nil
		}
	}
	return out
}
