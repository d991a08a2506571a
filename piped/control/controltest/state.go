package controltest

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// status is a control.Status with a fixed state, except for that of the store.
type status struct{ store *store.Store }

// State returns a fixed state with one readable and one unreadable repository.
func (s status) State(ctx context.Context) deploy.AgentState {
	return deploy.AgentState{
		Name: "test agent", Version: "v1.2.3", BuildCommit: "0123456", GoVersion: "go1.26", StartedAt: Epoch, ConfigLoadedAt: Epoch.Add(time.Minute),
		ConfigError: "piped.yaml:7: spec.limts: unknown field",
		Queues: []deploy.QueueState{
			{Name: "planner", Waiting: 2, Active: 1, Limit: 16, OldestWaiting: Epoch},
			{Name: "scheduler", Active: 3},
			{Name: "cluster/dev", Active: 3, Limit: 5},
		},
		Repositories: []deploy.RepositoryState{
			{
				ID: "apps", Remote: "https://git.example.com/apps.git", Branch: "main", Head: "0123456789abcdef0123456789abcdef01234567",
				CheckedAt: Epoch.Add(time.Minute), FetchedAt: Epoch, Applications: 3,
			},
			{ID: "infra", Remote: "https://git.example.com/infra.git", Branch: "main", Error: "connection refused", FailingSince: Epoch},
		},
		Clusters: []deploy.ClusterState{
			{Name: "dev", Version: "v1.36.3", Reachable: true, WatchedKinds: 4, WatchedObjects: 120},
			{Name: "prod", Error: "connection refused", FailingSince: Epoch},
		},
		Receivers: []deploy.ReceiverState{{
			Name: "team", Pending: 3, OldestPending: Epoch, Error: "no answer", Dead: 21,
			DeadLetters: []deploy.Delivery{{
				Receiver: "team", Event: deploy.Event{Key: "d1//SUCCESS", Type: deploy.EventSucceeded, DeploymentID: "d1"},
				Attempts: 300, Error: "the answer is 404 Not Found", GivenUpAt: Epoch.Add(time.Minute),
			}},
		}},
		Scripts: deploy.ScriptsState{Isolation: "landlock", EndedBy: "cgroup", Holds: "a script opens its own files only", Error: "no scripts"},
		Store:   s.store.State(ctx),
	}
}
