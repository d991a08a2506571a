package deploy

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Commit identifies a Git commit.
type Commit struct {
	Hash    string    `json:"hash"`
	Message string    `json:"message"` // the subject line
	Author  string    `json:"author"`
	Branch  string    `json:"branch"`
	URL     string    `json:"url,omitempty"`
	At      time.Time `json:"at"`
	// Trace is the commit elsewhere that caused this one, as its trailer TraceTrailer
	// says; "" when none does.
	Trace string `json:"trace,omitempty"`
}

// TraceTrailer is the key of the trailer that names the commit elsewhere that
// caused a commit. It is PipeCD's.
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

// TriggerKind says what made a deployment.
type TriggerKind string

// The kinds of trigger.
const (
	OnCommit    TriggerKind = "ON_COMMIT"
	OnCommand   TriggerKind = "ON_COMMAND"
	OnOutOfSync TriggerKind = "ON_OUT_OF_SYNC"
	OnChain     TriggerKind = "ON_CHAIN"
)

// Strategy is how a deployment shall be carried out.
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

// Trigger is what made a deployment, as it was at that moment.
type Trigger struct {
	Kind            TriggerKind `json:"kind"`
	Commit          Commit      `json:"commit"`
	Commander       string      `json:"commander,omitempty"` // subject of the API key; "" for Git and drift
	At              time.Time   `json:"at"`
	Strategy        Strategy    `json:"strategy"`
	StrategySummary string      `json:"strategySummary,omitempty"`
	// OverrideWindows: a person asked for it to run even if a sync window denies it.
	OverrideWindows bool `json:"overrideWindows,omitempty"`
	// TakeOver: the commit is the one that was found running when the application
	// was first seen; deploying it makes the live objects this agent's.
	TakeOver bool `json:"takeOver,omitempty"`
	// OwnershipOnly: the branch has brought more since that commit. What is not live
	// is not created, and what follows is for the next deployment.
	OwnershipOnly bool `json:"ownershipOnly,omitempty"`
	// PermitPrune are objects whose deletion a person permitted, although they are
	// more than a prune may delete.
	PermitPrune []ObjectRef `json:"permitPrune,omitempty"`
}

// ArtifactVersion is one artifact a deployment brings, such as an image.
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
	Git             GitPath
	Provider        string
	Labels          map[string]string
	Trigger         Trigger

	Status       Status
	StatusReason string
	Strategy     Strategy // what was planned, QUICK_SYNC or PIPELINE; "" before
	Summary      string
	Versions     []ArtifactVersion
	Stages       []Stage
	Metadata     map[string]string

	// RunningCommit, RunningDir and RunningConfigFile name the application's last success
	// at planning time: what a rollback returns to. Empty on a first deployment.
	RunningCommit       string
	RunningDir          string
	RunningConfigFile   string
	RunningDeploymentID string

	ChainID    string
	ChainBlock int

	// Timeout bounds the forward part of the run, RollbackTimeout the rollback;
	// zero means none. Deadline is absolute and set when the deployment starts.
	Timeout         time.Duration
	RollbackTimeout time.Duration
	Deadline        time.Time

	// NoAutoRollback: the rollback stages run only when a cancel asks for it.
	NoAutoRollback bool

	// Outcome is the final status that a rollback leads to, and its reason:
	// decided when the rollback starts, so that a restart cannot change it.
	Outcome       Status
	OutcomeReason string

	// Revision counts the writes of the row; the store compares and swaps it.
	Revision int64

	CreatedAt   time.Time
	UpdatedAt   time.Time
	CompletedAt time.Time
}

// Ref returns what the application remembers of d.
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

// RunningGit returns where the application was at its last success.
func (d *Deployment) RunningGit() GitPath { return d.Git.In(d.RunningDir, d.RunningConfigFile) }

// RollsBackOnlyTo reports whether d's rollback, if it were rolled back, would bring back
// that commit and undo nothing else, such as what a script did.
func (d *Deployment) RollsBackOnlyTo(commit string) bool {
	return d.RunningCommit == commit && !slices.ContainsFunc(d.RollbackStages(), func(s Stage) bool { return s.Name != StageRollback })
}

// Clone returns a copy of d that shares nothing that a move changes.
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

	// Options are the stage's own options (`with`) as JSON, fixed at planning.
	Options json.RawMessage
	// SkipOn says when the stage is skipped, as JSON (skipOn); nil is never.
	SkipOn json.RawMessage
	// Timeout bounds one run of the stage; zero means none.
	Timeout time.Duration

	Status       StageStatus
	StatusReason string
	Metadata     map[string]string

	// Deadline is absolute: set when the stage starts, never moved by a restart.
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

// StageAnalysis is PipeCD's stage that judges a deployment by its metrics.
const StageAnalysis = "ANALYSIS"

// IDs of the rollback stages that the planner adds; no configuration may choose
// them for others.
const (
	RollbackID           = "Rollback"
	ScriptRollbackID     = "ScriptRunRollback"  // with - and the ID of the stage whose script it takes back
	CustomSyncRollbackID = "CustomSyncRollback" // with - and the ID of the stage of the last success that it runs again
)

// Keys of the Stage.Metadata by which the planner tells a SCRIPT_RUN_ROLLBACK or a
// CUSTOM_SYNC_ROLLBACK what it undoes and how. The names are PipeCD's but for the
// last.
const (
	MetaBaseStage     = "baseStageID"   // the ID of the forward stage that it undoes
	MetaOnRollback    = "onRollback"    // the script
	MetaScriptEnv     = "env"           // the script's variables, a JSON object
	MetaOnInterrupted = "onInterrupted" // what becomes of it when it is interrupted
)

// Keys under which the metadata names people: of a WAIT_APPROVAL stage those who have
// approved, as PipeCD does, and of a deployment who has cancelled it.
const (
	MetaApprovedBy  = "ApprovedBy"
	MetaCancelledBy = "CancelledBy"
)

// MetaPruneRefused is the key of the Stage.Metadata under which a stage that would
// have deleted too much names what: a JSON array of ObjectRef.
const MetaPruneRefused = "pruneRefused"

// Keys of the Stage.Metadata under which a stage notes objects for its own next run,
// and for later stages: those it is about to create, those it restarts, how its hooks
// went, and how it shares the traffic.
const (
	MetaCreating      = "creating"
	MetaConfigChanges = "configChanges"
	MetaHooks         = "hooks"
	MetaTraffic       = "traffic"
)

// MetaEnvironmentURL is the key of the Deployment.Metadata that holds where what is
// deployed can be seen, as its application's configuration says; there is none if it
// says nothing.
const MetaEnvironmentURL = "environmentURL"

// ShownMetadata returns the metadata that is for people: without what names objects,
// for a name can hold what was decrypted.
func (s Stage) ShownMetadata() map[string]string {
	shown := maps.Clone(s.Metadata)
	for _, key := range []string{MetaCreating, MetaConfigChanges, MetaHooks, MetaTraffic, MetaPruneRefused} {
		delete(shown, key)
	}
	return shown
}

// Skippable reports whether a person may skip stages of that name: those that
// only let time pass or check. An approval is given or refused, never skipped.
func Skippable(stageName string) bool { return stageName == StageWait || stageName == StageAnalysis }

// Transition is one entry of a deployment's transition log. StageID is "" for
// moves of the deployment itself.
type Transition struct {
	DeploymentID string
	StageID      string
	From, To     string
	Reason       string
	At           time.Time
}

// SwapMetadata sets a key of the stage's metadata whose value is was, "" when it is
// missing. Conflict if the value is another one.
func (s *Stage) SwapMetadata(key, was, value string, now time.Time) error {
	if s.Metadata[key] != was {
		return Errorf(Conflict, "stage %s: another run of the stage has set %s meanwhile; it goes on, this one does not", s.ID, key)
	}
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	s.Metadata[key], s.UpdatedAt = value, now
	return nil
}
