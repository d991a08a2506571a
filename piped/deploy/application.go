package deploy

import (
	"cmp"
	"maps"
	"path"
	"time"

	"github.com/google/uuid"
)

// GitPath locates an application's configuration.
type GitPath struct {
	RepoID     string `json:"repoID"`
	Remote     string `json:"remote"` // without credentials
	Branch     string `json:"branch"`
	Dir        string `json:"dir"`        // slash-separated, relative to the repository's root; "." is the root
	ConfigFile string `json:"configFile"` // base name, such as app.pipecd.yaml
	// PullRequest is the number of the pull request that the application previews; 0 for
	// an application that the branch deploys.
	PullRequest int `json:"pullRequest,omitempty"`
}

// ConfigPath returns the configuration file's path from the repository's root.
func (p GitPath) ConfigPath() string { return path.Join(p.Dir, p.ConfigFile) }

// In returns p with dir and file as directory and configuration file; "" keeps the value of p.
func (p GitPath) In(dir, file string) GitPath {
	p.Dir, p.ConfigFile = cmp.Or(dir, p.Dir), cmp.Or(file, p.ConfigFile)
	return p
}

// applicationNamespace is the name space of application IDs.
var applicationNamespace = uuid.MustParse("6f1d0c1e-8f6e-5b0a-9d53-3f0f8a3d7f10")

// IsPreview reports whether the application is the preview of a pull request. Its
// configuration comes from the merge of the pull request and not from the branch.
func (a Application) IsPreview() bool { return a.Git.PullRequest != 0 }

// ApplicationID derives the ID of an application first seen at p: a UUIDv5 of
// repository ID, directory and configuration file name. The same ID results after the
// loss of the database. A moved application retains its first ID; see Places.
func ApplicationID(p GitPath) string {
	return uuid.NewSHA1(applicationNamespace, []byte(placeKey(p))).String()
}

// SyncStatus relates an application's live state to Git.
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

// SyncState is an application's sync status with a reason for users.
type SyncState struct {
	Status           SyncStatus `json:"status"`
	ShortReason      string     `json:"shortReason,omitempty"`
	Reason           string     `json:"reason,omitempty"`
	HeadDeploymentID string     `json:"headDeploymentID,omitempty"`
	// LeftOver reports that self-healing cannot remove the difference: it consists only
	// of objects deleted from Git and of commits whose deployment failed.
	LeftOver bool `json:"leftOver,omitempty"`
	// Commit is the last commit reported as invalid; "" while the configuration is
	// valid.
	Commit string    `json:"commit,omitempty"`
	At     time.Time `json:"at"`
}

// SameAs reports whether s and o differ at most in time.
func (s SyncState) SameAs(o SyncState) bool {
	return s.Status == o.Status && s.ShortReason == o.ShortReason && s.Reason == o.Reason && s.HeadDeploymentID == o.HeadDeploymentID &&
		s.LeftOver == o.LeftOver && s.Commit == o.Commit
}

// DeploymentRef summarizes a deployment in its application's record.
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

// At returns the application's path at that deployment, given its current path git.
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

	// Former lists earlier locations of the configuration, the most recent first. Only
	// Dir and ConfigFile are set.
	Former []GitPath

	// Registration describes how the application was registered.
	Registration Registration

	// EvaluatedCommit is the last commit that the trigger compared with its
	// predecessor: the base of the next comparison.
	EvaluatedCommit string

	LastTriggered  *DeploymentRef
	LastSuccessful *DeploymentRef

	// Hold is set while a user holds the application at another commit than the head.
	Hold *Hold

	// Notice explains to users what the agent stopped doing for the application and how
	// to resume it; "" for none. NoticeAt is when the notice was set, zero if there
	// never was one.
	Notice   string
	NoticeAt time.Time

	// Deploying reports an active deployment. ActiveID is its ID, ActiveSince the time of its
	// creation. The three are derived.
	Deploying   bool
	ActiveID    string
	ActiveSince time.Time

	CreatedAt time.Time
	UpdatedAt time.Time
}

// ShownSync returns the sync state to display: DEPLOYING during an active deployment,
// the stored state otherwise. DEPLOYING is never stored.
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

// withHold returns the stored sync state with the hold prepended to its reason.
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

// SameSpec reports whether a and b agree in name, kind, Git path, provider, description
// and labels.
func (a Application) SameSpec(b Application) bool {
	return a.Name == b.Name && a.Kind == b.Kind && a.Git == b.Git && a.Provider == b.Provider &&
		a.Description == b.Description && maps.Equal(a.Labels, b.Labels)
}

// Registration describes how an application was registered. The zero value means that the
// agent's configuration selected it in Git.
type Registration struct {
	By string    `json:"by,omitempty"` // subject of the API key that added it; "" for none
	At time.Time `json:"at"`
	// Provider is the platform provider that is used while the configuration sets none.
	Provider string `json:"provider,omitempty"`
	// Name is the application's name while the configuration has none.
	Name string `json:"name,omitempty"`
}

// NameOf returns an application's name: the configured one, else the registered one, else the
// directory's, or the repository ID for the root directory.
func NameOf(name string, r Registration, p GitPath) string {
	return cmp.Or(name, r.Name, path.Base(path.Join(p.RepoID, p.Dir)))
}

// The kinds of application.
const (
	KindKubernetes = "KUBERNETES"
	KindTerraform  = "TERRAFORM"
	KindOpenTofu   = "OPENTOFU"
)
