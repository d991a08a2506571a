package deploy

import (
	"cmp"
	"maps"
	"path"
	"time"

	"github.com/google/uuid"
)

// GitPath says where an application's configuration lives.
type GitPath struct {
	RepoID     string `json:"repoID"`
	Remote     string `json:"remote"` // without credentials
	Branch     string `json:"branch"`
	Dir        string `json:"dir"`        // slash-separated, relative to the repository's root; "." is the root
	ConfigFile string `json:"configFile"` // base name, such as app.pipecd.yaml
}

// ConfigPath returns the configuration file's path from the repository's root.
func (p GitPath) ConfigPath() string { return path.Join(p.Dir, p.ConfigFile) }

// In returns p with another directory and configuration file, each unless it is "".
func (p GitPath) In(dir, file string) GitPath {
	p.Dir, p.ConfigFile = cmp.Or(dir, p.Dir), cmp.Or(file, p.ConfigFile)
	return p
}

// applicationNamespace is the name space of application IDs.
var applicationNamespace = uuid.MustParse("6f1d0c1e-8f6e-5b0a-9d53-3f0f8a3d7f10")

// ApplicationID derives the ID of an application that is first seen at p: a UUIDv5 of
// repository ID, directory and configuration file name, so that it is the same
// after the database was lost. An application that was moved keeps its ID: Places knows.
func ApplicationID(p GitPath) string {
	return uuid.NewSHA1(applicationNamespace, []byte(placeKey(p))).String()
}

// SyncStatus says how an application's live state relates to Git.
type SyncStatus string

// The sync statuses, as in PipeCD.
const (
	SyncUnknown       SyncStatus = "UNKNOWN"
	Synced            SyncStatus = "SYNCED"
	SyncDeploying     SyncStatus = "DEPLOYING"
	OutOfSync         SyncStatus = "OUT_OF_SYNC"
	SyncInvalidConfig SyncStatus = "INVALID_CONFIG"
)

// SyncStatuses lists every sync status in the order of PipeCD's enum numbers.
func SyncStatuses() []SyncStatus {
	return []SyncStatus{SyncUnknown, Synced, SyncDeploying, OutOfSync, SyncInvalidConfig}
}

// SyncState is an application's sync status with its reason for a person.
type SyncState struct {
	Status           SyncStatus `json:"status"`
	ShortReason      string     `json:"shortReason,omitempty"`
	Reason           string     `json:"reason,omitempty"`
	HeadDeploymentID string     `json:"headDeploymentID,omitempty"`
	// LeftOver: all that is out of sync is what healing does not mend: objects that
	// Git does not have any more, and commits whose deployment has not succeeded.
	LeftOver bool `json:"leftOver,omitempty"`
	// Commit is the last one of which it was told that the configuration cannot be
	// used; only while it cannot.
	Commit string    `json:"commit,omitempty"`
	At     time.Time `json:"at"`
}

// SameAs reports whether s says the same as o, whenever it was said.
func (s SyncState) SameAs(o SyncState) bool {
	return s.Status == o.Status && s.ShortReason == o.ShortReason && s.Reason == o.Reason && s.HeadDeploymentID == o.HeadDeploymentID &&
		s.LeftOver == o.LeftOver && s.Commit == o.Commit
}

// DeploymentRef is what an application remembers of one of its deployments.
type DeploymentRef struct {
	DeploymentID string            `json:"deploymentID"`
	Trigger      Trigger           `json:"trigger"`
	Summary      string            `json:"summary,omitempty"`
	Dir          string            `json:"dir,omitempty"` // "" is the application's own
	ConfigFile   string            `json:"configFile,omitempty"`
	Versions     []ArtifactVersion `json:"versions,omitempty"`
	StartedAt    time.Time         `json:"startedAt"`
	CompletedAt  time.Time         `json:"completedAt"`
}

// At returns where the deployment found the application, which is at git now.
func (r *DeploymentRef) At(git GitPath) GitPath {
	return git.In(r.Dir, r.ConfigFile)
}

// Application is one app.pipecd.yaml that this agent deploys.
type Application struct {
	ID          string
	Name        string
	Kind        string // KUBERNETES
	Git         GitPath
	Provider    string // platform provider; "" while the configuration is invalid
	Description string
	Labels      map[string]string
	Disabled    bool
	Deleted     bool
	DeletedAt   time.Time
	Sync        SyncState

	// Former are the places where the configuration was before it was moved to Git, the
	// last one first. They say nothing but directory and file.
	Former []GitPath

	// Registration says how it came to be an application of this agent.
	Registration Registration

	// EvaluatedCommit is the last commit for which the trigger decided whether
	// this application changed: the base of the next comparison.
	EvaluatedCommit string

	LastTriggered  *DeploymentRef
	LastSuccessful *DeploymentRef

	// Hold is set while a user keeps the application at a commit other than the head's.
	Hold *Hold

	// Notice says, for a person, what the agent has stopped doing for the
	// application and how to go on; "" when there is nothing of the kind. It says so
	// since NoticeAt, which is zero if there never was one.
	Notice   string
	NoticeAt time.Time

	// Deploying is derived: whether a deployment of the application is active.
	// ActiveID is which, and it was created at ActiveSince.
	Deploying   bool
	ActiveID    string
	ActiveSince time.Time

	CreatedAt time.Time
	UpdatedAt time.Time
}

// ShownSync returns the sync state as people are told it: DEPLOYING for as long as a
// deployment of the application is active, and what is stored otherwise. DEPLOYING is
// never stored.
func (a Application) ShownSync() SyncState {
	if !a.Deploying {
		return a.withHold()
	}
	reason := "Deployment " + a.ActiveID + " is under way. Before it, the application was " + string(a.Sync.Status)
	if a.Sync.ShortReason != "" {
		reason += ": " + a.Sync.ShortReason
	}
	return SyncState{
		Status: SyncDeploying, ShortReason: "A deployment is under way", Reason: reason, HeadDeploymentID: a.ActiveID, At: a.ActiveSince,
	}
}

// withHold returns the stored sync state, in whose reason a hold comes first.
func (a Application) withHold() SyncState {
	s := a.Sync
	if a.Hold == nil || s.Status == SyncInvalidConfig {
		return s
	}
	held := a.Hold.String()
	if s.Reason = held + ". A new commit to the application, or a sync, ends that"; a.Sync.Reason+a.Sync.ShortReason != "" {
		s.Reason += "\n" + cmp.Or(a.Sync.Reason, a.Sync.ShortReason)
	}
	if s.ShortReason == "" {
		s.ShortReason = held
	} else {
		s.ShortReason += ". " + held
	}
	return s
}

// SameSpec reports whether Git or the registration says the same of a and b: its
// name, kind, Git path, provider, description and labels.
func (a Application) SameSpec(b Application) bool {
	return a.Name == b.Name && a.Kind == b.Kind && a.Git == b.Git && a.Provider == b.Provider &&
		a.Description == b.Description && maps.Equal(a.Labels, b.Labels)
}

// Registration says how an application came to be one of this agent. The zero
// value means that the agent's configuration selected it in Git.
type Registration struct {
	By string    `json:"by,omitempty"` // subject of the API key that added it; "" unless one did
	At time.Time `json:"at"`
	// Provider is the platform provider for as long as the application's
	// configuration names none; "" when none was given.
	Provider string `json:"provider,omitempty"`
	// Name is the application's name for as long as its configuration has none; "" when
	// none was given.
	Name string `json:"name,omitempty"`
}

// NameOf returns what an application is called whose configuration says name: that, or
// what it was registered as, or else its directory, or its repository at the root.
func NameOf(name string, r Registration, p GitPath) string {
	return cmp.Or(name, r.Name, path.Base(path.Join(p.RepoID, p.Dir)))
}

// KindKubernetes is the application kind of Kubernetes applications.
const KindKubernetes = "KUBERNETES"
