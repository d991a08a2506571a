package deploy

import "time"

// CommandType says what a command asks for. Names and numbers are PipeCD's.
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

	// CommandRejectStage is our own: it ends a stage that waits for approval.
	CommandRejectStage CommandType = "REJECT_STAGE"
	// CommandRetry is our own: it repeats the deployment it names.
	CommandRetry CommandType = "RETRY_DEPLOYMENT"
	// CommandDeleteApplication is our own: it asks for the deletion of what was
	// applied for an application, which is no longer registered.
	CommandDeleteApplication CommandType = "DELETE_APPLICATION"
	// CommandDecideAdoption is our own: it answers an Adoption.
	CommandDecideAdoption CommandType = "DECIDE_ADOPTION"
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
	// MetaTriggeredDeployment holds the ID of the deployment a sync made; the
	// name is PipeCD's, read by pipectl.
	MetaTriggeredDeployment = "TriggeredDeploymentID"
	// MetaRollbackTo holds the ID of the deployment whose commit a sync brings
	// back.
	MetaRollbackTo = "RollbackToDeploymentID"
	// MetaReason says why a command failed.
	MetaReason = "Reason"

	// MetaApplied, of a CommandDeleteApplication, is how many objects the inventory
	// held when it was given, MetaDeleted how many of them are gone, MetaLeft what is
	// there still and stays, with the reasons, and MetaWaiting, while it is open, what
	// keeps it from its end.
	MetaApplied = "AppliedObjects"
	MetaDeleted = "DeletedObjects"
	MetaLeft    = "LeftObjects"
	MetaWaiting = "Waiting"
)

// Command is a request of a person or a program, kept until it is answered.
// It is answered exactly once.
type Command struct {
	ID            string
	Type          CommandType
	ApplicationID string
	DeploymentID  string
	StageID       string
	Commander     string // subject of the API key
	Strategy      Strategy
	Commit        string // of a sync or retry: a hash to deploy in place of the head, "" for the head
	Reason        string // of a reject or of a sync that goes back: why, for people

	// OverrideWindows: the deployment runs even if a sync window denies it.
	OverrideWindows bool

	// WaitForRunning of a sync that goes back: the deployments of the application that
	// wait or run are not cancelled for it.
	WaitForRunning bool

	// PermitPrune of a CommandRetry are objects that the repeated deployment may
	// delete although they are more than a prune may.
	PermitPrune []ObjectRef

	// ChainID and ChainBlock are those of the deployment that a CommandChainSync
	// asks for.
	ChainID    string
	ChainBlock int

	// Cascade of a CommandDeleteApplication: the objects that were applied for the
	// application are deleted, too.
	Cascade bool

	// Accept and Token of a CommandDecideAdoption: whether the Adoption of that token
	// is permitted.
	Accept bool
	Token  string

	// PlanPreview is what a CommandBuildPlanPreview asks about.
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

// GoesBack reports whether c is a rollback by hand: a sync to the commit of an earlier
// success.
func (c Command) GoesBack() bool { return c.Type == CommandSync && c.Metadata[MetaRollbackTo] != "" }
