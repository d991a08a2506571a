package deploy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Commit identifies a Git commit.
type Commit struct {
	Hash    string `json:"hash"`
	Message string `json:"message"` // the subject line
	Author  string `json:"author"`  // the author's name
	// AuthorEmail, Committer and CommitterEmail are "" in rows of earlier versions.
	AuthorEmail    string    `json:"authorEmail,omitempty"`
	Committer      string    `json:"committer,omitempty"` // the committer's name
	CommitterEmail string    `json:"committerEmail,omitempty"`
	Branch         string    `json:"branch"`
	URL            string    `json:"url,omitempty"`
	At             time.Time `json:"at"`
	// Trace is the source commit that caused this one, from its trailer TraceTrailer;
	// "" for none.
	Trace string `json:"trace,omitempty"`
	// Merged is the head commit of a pull request if this commit is its merge for a preview,
	// which exists only in the agent's mirror; "" for a commit of the branch.
	Merged string `json:"merged,omitempty"`
}

// TraceTrailer is the key of the commit trailer that names the source commit. It is
// PipeCD's.
const TraceTrailer = "Pipecd-Dev-Trace-Trigger-Commit-Hash"

// Short returns the first seven characters of the hash.
func (c Commit) Short() string { return ShortHash(c.Hash) }

// ShortHash returns the first seven characters of a commit hash.
func ShortHash(hash string) string {
	if len(hash) > 7 {
		return hash[:7]
	}
	return hash
}

// TriggerKind is the cause of a deployment.
type TriggerKind string

// The kinds of trigger.
const (
	OnCommit    TriggerKind = "ON_COMMIT"
	OnCommand   TriggerKind = "ON_COMMAND"
	OnOutOfSync TriggerKind = "ON_OUT_OF_SYNC"
	OnChain     TriggerKind = "ON_CHAIN"
)

// Strategy is how a deployment is carried out.
type Strategy string

// The sync strategies.
const (
	StrategyAuto      Strategy = "AUTO"
	StrategyQuickSync Strategy = "QUICK_SYNC"
	StrategyPipeline  Strategy = "PIPELINE"
)

// Strategies lists every strategy in the order of PipeCD's enum numbers.
func Strategies() []Strategy {
	return []Strategy{StrategyAuto, StrategyQuickSync, StrategyPipeline}
}

// Trigger describes the cause of a deployment at the time of its creation.
type Trigger struct {
	Kind            TriggerKind `json:"kind"`
	Commit          Commit      `json:"commit"`
	Commander       string      `json:"commander,omitempty"` // subject of the user or API key; "" for Git and drift
	At              time.Time   `json:"at"`
	Strategy        Strategy    `json:"strategy"`
	StrategySummary string      `json:"strategySummary,omitempty"`
	// OverrideWindows reports that a user asked to ignore sync windows.
	OverrideWindows bool `json:"overrideWindows,omitempty"`
	// TakeOver reports that the commit was found running when the application was first
	// seen. Deploying it takes ownership of the live objects.
	TakeOver bool `json:"takeOver,omitempty"`
	// OwnershipOnly reports that the branch has newer changes. The deployment creates
	// no missing objects; the next deployment brings the changes.
	OwnershipOnly bool `json:"ownershipOnly,omitempty"`
	// PermitPrune lists objects whose deletion a user permitted beyond the prune limit.
	PermitPrune []ObjectRef `json:"permitPrune,omitempty"`
	// RetryOf is the deployment that a CommandRetry repeats, "" for none.
	RetryOf string `json:"retryOf,omitempty"`
}

// ArtifactVersion is one deployed artifact, such as an image.
type ArtifactVersion struct {
	Kind    string `json:"kind"` // CONTAINER_IMAGE or UNKNOWN
	Version string `json:"version"`
	Name    string `json:"name"`
	URL     string `json:"url"`
}

// Deployment is one run of an application's stages for one commit.
type Deployment struct {
	ID              string
	ApplicationID   string
	ApplicationName string
	Kind            string // of the application; "" in older rows means KUBERNETES
	Git             GitPath
	Provider        string
	Labels          map[string]string
	Trigger         Trigger

	Status       Status
	StatusReason string
	Strategy     Strategy // the planned strategy, QUICK_SYNC or PIPELINE; "" before planning
	Summary      string
	Versions     []ArtifactVersion
	Stages       []Stage
	Metadata     map[string]string

	// RunningCommit, RunningDir and RunningConfigFile locate the application's last success at
	// planning time, the target of a rollback. They are empty for a first deployment.
	RunningCommit       string
	RunningDir          string
	RunningConfigFile   string
	RunningDeploymentID string

	// SupersededBy is the newer deployment because of which this one was cancelled, "" for
	// none.
	SupersededBy string

	ChainID    string
	ChainBlock int

	// Timeout bounds the forward stages, RollbackTimeout the rollback; zero means no
	// limit. Deadline is absolute and set when the deployment starts.
	Timeout         time.Duration
	RollbackTimeout time.Duration
	Deadline        time.Time

	// NoAutoRollback disables the rollback unless a cancel request forces it.
	NoAutoRollback bool

	// Outcome and OutcomeReason are the final status after the rollback and its reason. They
	// are stored when the rollback starts and survive a restart.
	Outcome       Status
	OutcomeReason string

	// Revision counts the writes of the row for compare-and-swap.
	Revision int64

	CreatedAt   time.Time
	UpdatedAt   time.Time
	CompletedAt time.Time
}

// Ref returns the summary of d for its application's record.
func (d *Deployment) Ref() *DeploymentRef {
	return &DeploymentRef{
		DeploymentID: d.ID, Trigger: d.Trigger, Summary: d.Summary, Dir: d.Git.Dir, ConfigFile: d.Git.ConfigFile,
		Versions: d.Versions, StartedAt: d.CreatedAt, CompletedAt: d.CompletedAt,
	}
}

// Stage returns the stage with the given ID, or nil.
func (d *Deployment) Stage(id string) *Stage {
	for i := range d.Stages {
		if d.Stages[i].ID == id {
			return &d.Stages[i]
		}
	}
	return nil
}

// RunningGit returns the application's path at its last success.
func (d *Deployment) RunningGit() GitPath { return d.Git.In(d.RunningDir, d.RunningConfigFile) }

// UsesState reports whether a stage runs that may wait for the lock of a state of OpenTofu.
func (d *Deployment) UsesState() bool {
	return !d.Status.Completed() && slices.ContainsFunc(d.Stages, func(s Stage) bool {
		return s.Status == StageRunning && (s.Name == StageRollback || strings.HasPrefix(s.Name, "TERRAFORM_"))
	})
}

// RollsBackOnlyTo reports whether a rollback of d would restore that commit and undo
// nothing else, such as the effects of a script.
func (d *Deployment) RollsBackOnlyTo(commit string) bool {
	return d.RunningCommit == commit && !slices.ContainsFunc(d.RollbackStages(), func(s Stage) bool { return s.Name != StageRollback })
}

// Clone returns a copy of d without shared stages or metadata.
func (d Deployment) Clone() Deployment {
	stages := make([]Stage, len(d.Stages))
	for i, s := range d.Stages {
		s.Metadata = cloneMap(s.Metadata)
		stages[i] = s
	}
	d.Stages = stages
	d.Metadata = cloneMap(d.Metadata)
	return d
}

func cloneMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// Stage is one step of a deployment.
type Stage struct {
	ID       string // unique in its deployment
	Name     string // such as K8S_SYNC
	Desc     string
	Index    int
	Requires []string
	Visible  bool // false for stages that run only on rollback
	Rollback bool // runs while ROLLING_BACK instead of RUNNING

	// Options are the stage's own options (`with`) as JSON, stored at planning.
	Options json.RawMessage
	// SkipOn is the condition to skip the stage (skipOn) as JSON; nil never skips.
	SkipOn json.RawMessage
	// Timeout bounds one run of the stage; zero means none.
	Timeout time.Duration

	Status       StageStatus
	StatusReason string
	Metadata     map[string]string

	// Deadline is an absolute time, set when the stage starts. A restart does not change it.
	Deadline    time.Time
	StartedAt   time.Time
	CompletedAt time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// Names of the stages this agent runs, as in PipeCD.
const (
	StageK8sSync           = "K8S_SYNC"
	StageRollback          = "ROLLBACK"
	StageWait              = "WAIT"
	StageWaitApproval      = "WAIT_APPROVAL"
	StageScriptRun         = "SCRIPT_RUN"
	StageScriptRunRollback = "SCRIPT_RUN_ROLLBACK"

	StageCustomSync         = "CUSTOM_SYNC"
	StageCustomSyncRollback = "CUSTOM_SYNC_ROLLBACK"
)

// StageAnalysis is PipeCD's stage that evaluates a deployment by its metrics.
const StageAnalysis = "ANALYSIS"

// IDs of the rollback stages that the planner adds. Configurations cannot use them.
const (
	RollbackID           = "Rollback"
	ScriptRollbackID     = "ScriptRunRollback"  // followed by - and the ID of the stage whose script it undoes
	CustomSyncRollbackID = "CustomSyncRollback" // followed by - and the ID of the stage of the last success that it repeats
)

// Keys of Stage.Metadata that define, for a SCRIPT_RUN_ROLLBACK or CUSTOM_SYNC_ROLLBACK stage,
// what to undo and how. All names but the last are PipeCD's.
const (
	MetaBaseStage     = "baseStageID"   // the ID of the forward stage that it undoes
	MetaOnRollback    = "onRollback"    // the script
	MetaScriptEnv     = "env"           // the script's variables, a JSON object
	MetaOnInterrupted = "onInterrupted" // how to handle an interruption of the script
)

// Metadata keys that name users: the approvers of a WAIT_APPROVAL stage, as in PipeCD,
// and the user who cancelled a deployment.
const (
	MetaApprovedBy  = "ApprovedBy"
	MetaCancelledBy = "CancelledBy"
)

// MetaPruneRefused is the key of Stage.Metadata that lists the objects of a prune
// rejected as too large: a JSON array of ObjectRef.
const MetaPruneRefused = "pruneRefused"

// Keys of Stage.Metadata for progress that the resumed stage and later stages need: objects
// about to be created, restarted workloads, results of hooks, and the traffic split.
const (
	MetaCreating      = "creating"
	MetaConfigChanges = "configChanges"
	MetaHooks         = "hooks"
	MetaTraffic       = "traffic"
)

// MetaSubject is the key of Stage.Metadata for what an approval after the stage permits, such as a
// plan with its digest.
const MetaSubject = "subject"

// MetaEnvironmentURL is the key of Deployment.Metadata for the URL of the deployed
// environment. It is absent unless the application's configuration sets one.
const MetaEnvironmentURL = "environmentURL"

// ShownMetadata returns the metadata to display. It omits keys that contain names of objects,
// because a name can contain a decrypted secret.
func (s Stage) ShownMetadata() map[string]string {
	shown := maps.Clone(s.Metadata)
	for _, key := range []string{MetaCreating, MetaConfigChanges, MetaHooks, MetaTraffic, MetaPruneRefused} {
		delete(shown, key)
	}
	return shown
}

// Skippable reports whether users may skip stages of that name: waits and analyses.
// Approval stages are approved or rejected, never skipped.
func Skippable(stageName string) bool { return stageName == StageWait || stageName == StageAnalysis }

// Transition is one entry of a deployment's transition log. StageID is "" for
// transitions of the deployment itself.
type Transition struct {
	DeploymentID string
	StageID      string
	From, To     string
	Reason       string
	At           time.Time
}

// SwapMetadata sets a key of the stage's metadata if its current value is was, "" for a
// missing key. Otherwise it returns an error of kind Conflict.
func (s *Stage) SwapMetadata(key, was, value string, now time.Time) error {
	if s.Metadata[key] != was {
		return Errorf(Conflict, "stage %s: another run of the stage changed %s concurrently; this run stops", s.ID, key)
	}
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	s.Metadata[key], s.UpdatedAt = value, now
	return nil
}
