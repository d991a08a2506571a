package deploy

import "time"

// AgentState is the state of the agent as last reported by each component.
type AgentState struct {
	Name        string
	Version     string
	BuildCommit string // "" when unknown
	GoVersion   string
	StartedAt   time.Time
	// ConfigLoadedAt is when the agent read the active configuration. ConfigError is the
	// reason why it rejected a newer file, "" if it did not.
	ConfigLoadedAt time.Time
	ConfigError    string
	Disabled       bool // disabled through the API: nothing is triggered

	Queues       []QueueState
	Repositories []RepositoryState // in the order of the configuration
	Clusters     []ClusterState    // in the order of the configuration
	Store        StoreState
	Receivers    []ReceiverState // of notifications
	Scripts      ScriptsState
	// SyncStates counts the enabled applications by displayed sync status; nil when
	// unknown.
	SyncStates map[SyncStatus]int
}

// ScriptsState describes the isolation of stage scripts. All fields but Error are ""
// where the machine cannot run scripts.
type ScriptsState struct {
	Isolation string // as in the configuration, such as "landlock"
	EndedBy   string // what ends all processes of a script, such as "cgroup"
	Holds     string // guarantees of the isolation, for users
	Error     string // why script stages fail; "" when they run
}

// QueueState describes a work queue.
type QueueState struct {
	Name          string
	Waiting       int
	Active        int
	Limit         int       // on active items; 0 means none
	OldestWaiting time.Time // when the oldest waiting item was enqueued; zero when none waits
}

// RepositoryState describes a watched repository. Each time is zero until its event has
// happened since the agent's start.
type RepositoryState struct {
	ID           string
	Remote       string // without credentials
	Branch       string
	Head         string // last known head; "" before the first read
	CheckedAt    time.Time
	FetchedAt    time.Time
	Error        string // of the last check; "" when it succeeded
	FailingSince time.Time
	Applications int
}

// ClusterState describes the cluster of a platform provider.
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

// WatchProblem is the reason why objects of a kind cannot be watched. The drift of these
// objects is unknown.
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
	Error         string // why the store does not answer

	// Standbys are the processes that stand by for this agent, on PostgreSQL.
	Standbys []string

	// Shared states that replicas share the work. Replicas are they, by host.
	Shared   bool
	Replicas []ReplicaState
	// Handovers counts the partitions that a replica has taken, and Fenced the writes and requests
	// that were refused because another replica had the work.
	Handovers, Fenced int64
}

// ReplicaState is what is known of a replica that shares the work of its agent.
type ReplicaState struct {
	Host         string // host name and process
	Version      string
	StartedAt    time.Time
	Active       bool      // it has the database
	Partitions   int       // that it holds, of Partitions
	LastHandover time.Time // when it took the last of them; zero if it holds none
}
