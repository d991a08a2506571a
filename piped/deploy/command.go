package deploy

import "time"

// CommandType is the kind of a command. Names and numbers are PipeCD's.
type CommandType string

// The command types.
const (
	CommandSync             CommandType = "SYNC_APPLICATION"
	CommandUpdateConfig     CommandType = "UPDATE_APPLICATION_CONFIG"
	CommandCancel           CommandType = "CANCEL_DEPLOYMENT"
	CommandApproveStage     CommandType = "APPROVE_STAGE"
	CommandBuildPlanPreview CommandType = "BUILD_PLAN_PREVIEW"
	CommandChainSync        CommandType = "CHAIN_SYNC_APPLICATION"
	CommandSkipStage        CommandType = "SKIP_STAGE"
	CommandRestartPiped     CommandType = "RESTART_PIPED"

	// CommandRejectStage rejects a stage that waits for approval. Not in PipeCD.
	CommandRejectStage CommandType = "REJECT_STAGE"
	// CommandRetry repeats a deployment. Not in PipeCD.
	CommandRetry CommandType = "RETRY_DEPLOYMENT"
	// CommandDeleteApplication deletes the applied objects of an application that is no
	// longer registered. Not in PipeCD.
	CommandDeleteApplication CommandType = "DELETE_APPLICATION"
	// CommandDecideAdoption accepts or rejects an Adoption. Not in PipeCD.
	CommandDecideAdoption CommandType = "DECIDE_ADOPTION"
	// CommandReleaseStateLock releases the lock for which a deployment waits. Not in PipeCD.
	CommandReleaseStateLock CommandType = "RELEASE_STATE_LOCK"
)

// CommandTypes lists PipeCD's command types in the order of its enum numbers.
func CommandTypes() []CommandType {
	return []CommandType{CommandSync, CommandUpdateConfig, CommandCancel, CommandApproveStage,
		CommandBuildPlanPreview, CommandChainSync, CommandSkipStage, CommandRestartPiped}
}

// CommandStatus is the state of a command. The wire adds PipeCD's COMMAND_ prefix.
type CommandStatus string

// The statuses of a command.
const (
	CommandOpen      CommandStatus = "NOT_HANDLED_YET"
	CommandSucceeded CommandStatus = "SUCCEEDED"
	CommandFailed    CommandStatus = "FAILED"
	CommandTimeout   CommandStatus = "TIMEOUT"
)

// CommandStatuses lists every command status in the order of PipeCD's enum numbers.
func CommandStatuses() []CommandStatus {
	return []CommandStatus{CommandOpen, CommandSucceeded, CommandFailed, CommandTimeout}
}

// Keys of Command.Metadata.
const (
	// MetaTriggeredDeployment holds the ID of the deployment that a sync created. The
	// name is PipeCD's.
	MetaTriggeredDeployment = "TriggeredDeploymentID"
	// MetaRollbackTo holds the ID of the deployment whose commit a sync restores.
	MetaRollbackTo = "RollbackToDeploymentID"
	// MetaReason holds the reason why a command failed.
	MetaReason = "Reason"

	// Progress of a CommandDeleteApplication: MetaApplied is the number of objects in the
	// inventory at the start, MetaDeleted that of the objects deleted so far. MetaLeft lists
	// the remaining objects with reasons. MetaWaiting is the reason why the command is still
	// open.
	MetaApplied = "AppliedObjects"
	MetaDeleted = "DeletedObjects"
	MetaLeft    = "LeftObjects"
	MetaWaiting = "Waiting"
)

// Command is a request of a user or a program. It is stored and completed exactly once.
type Command struct {
	ID            string
	Type          CommandType
	ApplicationID string
	DeploymentID  string
	StageID       string
	Commander     string // subject of the user or API key
	// Account identifies the user or API key that requested a plan preview, because several can
	// have the same subject; "" for other commands.
	Account string
	// CommanderGroups are the groups of the user when the command was requested; nil for an
	// API key.
	CommanderGroups []string
	Strategy        Strategy
	Commit          string // of a sync or retry: the hash to deploy, "" for the head
	Reason          string // of a rejection or a rollback: the user's reason

	// OverrideWindows runs the deployment even if a sync window denies it.
	OverrideWindows bool

	// WaitForRunning, of a rollback, does not cancel the application's pending and running
	// deployments.
	WaitForRunning bool

	// PermitPrune, of a CommandRetry, lists objects that the repeated deployment may delete
	// beyond the prune limit.
	PermitPrune []ObjectRef

	// ChainID and ChainBlock locate the deployment requested by a CommandChainSync.
	ChainID    string
	ChainBlock int

	// Cascade, of a CommandDeleteApplication, also deletes the applied objects.
	Cascade bool

	// Accept and Token, of a CommandDecideAdoption, permit or reject the Adoption with that
	// token.
	Accept bool
	Token  string

	// LockID, of a CommandReleaseStateLock, is the ID of the lock.
	LockID string

	// SupersededBy, of a CommandCancel, is the newer deployment that replaces the cancelled
	// one; "" for a cancel by a user.
	SupersededBy string

	// PlanPreview is the request of a CommandBuildPlanPreview.
	PlanPreview *PlanPreviewRequest

	// ForceRollback and ForceNoRollback are the options of a cancel.
	ForceRollback   bool
	ForceNoRollback bool

	Status    CommandStatus
	Metadata  map[string]string
	CreatedAt time.Time
	UpdatedAt time.Time
	HandledAt time.Time
}

// Requester is a user or API key that requests plan previews. Several can have one subject, but
// each has an account of its own.
type Requester struct{ Account, Subject string }

// Requested reports whether c was requested by r. Commands of earlier versions have no account
// and are compared by their subject.
func (r Requester) Requested(c Command) bool {
	if c.Account != "" {
		return c.Account == r.Account
	}
	return c.Commander == r.Subject
}

// IsRollback reports whether c is a manual rollback: a sync to the commit of an earlier
// success.
func (c Command) IsRollback() bool { return c.Type == CommandSync && c.Metadata[MetaRollbackTo] != "" }
