package scheduler

import (
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Queues returns the running and waiting deployments: in total as "scheduler", and per
// platform provider as "cluster/<name>".
func (s *Scheduler) Queues() []deploy.QueueState {
	limits := s.Limits()
	all := deploy.QueueState{Name: "scheduler", Limit: limits.Deployments}
	clusters := map[string]*deploy.QueueState{}
	cluster := func(provider string) *deploy.QueueState {
		if clusters[provider] == nil {
			clusters[provider] = &deploy.QueueState{Name: "cluster/" + provider, Limit: limits.PerCluster}
		}
		return clusters[provider]
	}
	for _, provider := range s.Providers() {
		cluster(provider)
	}
	s.mu.Lock()
	for _, r := range s.runs {
		all.Active++
		cluster(r.provider).Active++
	}
	for _, d := range s.waiting {
		for _, q := range []*deploy.QueueState{&all, cluster(d.Provider)} {
			if q.Waiting++; q.OldestWaiting.IsZero() || d.Trigger.At.Before(q.OldestWaiting) {
				q.OldestWaiting = d.Trigger.At
			}
		}
	}
	s.mu.Unlock()
	out := []deploy.QueueState{all}
	for _, provider := range slices.Sorted(maps.Keys(clusters)) {
		out = append(out, *clusters[provider])
	}
	return out
}
