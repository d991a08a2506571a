package deploy

import "time"

// AgentState is the state of the agent itself, as each of its parts knew it last.
type AgentState struct {
	Name        string
	Version     string
	BuildCommit string // "" when unknown
	GoVersion   string
	StartedAt   time.Time
	// ConfigLoadedAt is when the configuration in effect was read, ConfigError why
	// a newer one on disk was refused; "" when none was.
	ConfigLoadedAt time.Time
	ConfigError    string
	Disabled       bool // by request: nothing is triggered

	Queues       []QueueState
	Repositories []RepositoryState // in the order of the configuration
	Clusters     []ClusterState    // in the order of the configuration
	Store        StoreState
	Receivers    []ReceiverState // of notifications
	Scripts      ScriptsState
	// SyncStates counts the enabled applications by the sync state that is shown of
	// them; nil when it is not known.
	SyncStates map[SyncStatus]int
}

// ScriptsState is how the scripts of stages are kept from the agent. All but Error is ""
// where the machine permits no scripts.
type ScriptsState struct {
	Isolation string // as in the configuration, such as "landlock"
	EndedBy   string // what ends all processes of a script, such as "cgroup"
	Holds     string // what is guaranteed, for people
	Error     string // why stages that run scripts fail; "" when they run
}

// QueueState is the work of one kind.
type QueueState struct {
	Name          string
	Waiting       int
	Active        int
	Limit         int       // of what is active; 0 means none
	OldestWaiting time.Time // since when the oldest item waits; zero when none does
}

// RepositoryState is what is known of a watched repository. Its times are zero for
// what has not happened since the agent started.
type RepositoryState struct {
	ID           string
	Remote       string // without credentials
	Branch       string
	Head         string // as last seen; "" when never seen
	CheckedAt    time.Time
	FetchedAt    time.Time
	Error        string // of the last look; "" when it succeeded
	FailingSince time.Time
	Applications int
}

// ClusterState is what is known of the cluster of a platform provider.
type ClusterState struct {
	Name           string
	Version        string // of its API server; "" when it was never reached
	Reachable      bool
	Error          string // why it is not reachable
	FailingSince   time.Time
	WatchedKinds   int
	WatchedObjects int
	WatchProblems  []WatchProblem // by kind
}

// WatchProblem says why objects of a kind cannot be watched: nobody knows whether they
// drift.
type WatchProblem struct {
	Kind  string // with its group: Deployment.apps
	Error string
	Since time.Time
}

// StoreState is the state of the store.
type StoreState struct {
	Engine        string // sqlite or postgres
	SchemaVersion int64
	SizeBytes     int64  // 0 when unknown
	Error         string // why it does not answer
}
