package deploy

import (
	"context"
	"errors"
)

// StageRun is one run of one stage, passed from the scheduler to an executor. After a
// restart the scheduler runs the stage again with Resumed set. What the executor
// recorded before is in the stage's metadata and in the rollout records.
type StageRun struct {
	Application Application
	Deployment  Deployment
	Stage       Stage
	Resumed     bool
	Log         StageLog

	// SaveMetadata merges keys into the stage's metadata and returns when they are
	// stored: an intent written with it survives a crash.
	SaveMetadata func(ctx context.Context, kv map[string]string) error
	// SwapMetadata stores a key's value if the stored value is was, "" for a missing key.
	// Otherwise it returns an error of kind Conflict: the stage runs twice.
	SwapMetadata func(ctx context.Context, key, was, value string) error
}

// First reports whether no stage of the deployment was started before this one.
func (r StageRun) First() bool {
	forward := r.Deployment.ForwardStages()
	return !r.Resumed && len(forward) > 0 && forward[0].ID == r.Stage.ID
}

// StageResult is the result of a stage.
type StageResult struct {
	Status StageStatus // SUCCESS, FAILURE, CANCELLED, SKIPPED or EXITED
	Reason string      // the failure, its cause, and where possible the remedy
	// NoRollback forbids the automatic rollback: another writer changed the workload,
	// and the agent must not undo that change.
	NoRollback bool
	// Interrupted means that the agent's own store could not be used. The stage has not
	// ended: it is resumed when the store is back, as after a restart.
	Interrupted bool
}

// StageLog is the log of one stage. Its methods never block on I/O and are safe for concurrent
// use. Lines are stored in batches, all of them before the end of the stage is stored.
type StageLog interface {
	Infof(format string, args ...any)
	Successf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Severity of a stage log block.
type Severity string

// The severities, as in PipeCD.
const (
	SeverityInfo    Severity = "INFO"
	SeveritySuccess Severity = "SUCCESS"
	SeverityError   Severity = "ERROR"
)

// StopReason is why a running stage must stop. It is the cause of the stage's context
// (context.Cause).
type StopReason string

// The reasons to stop a stage.
const (
	// StopCancelled: a user cancelled the deployment. The stage ends CANCELLED.
	StopCancelled StopReason = "cancelled"
	// StopTimedOut: the deadline of the stage or the deployment passed. The stage ends
	// in FAILURE.
	StopTimedOut StopReason = "timed out"
	// StopSkipped: a user skipped the stage. The stage ends SKIPPED.
	StopSkipped StopReason = "skipped"
	// StopShutdown: the agent is shutting down. The stage does not end; it is resumed
	// after the next start.
	StopShutdown StopReason = "agent is shutting down"
)

// Error implements error, so that a StopReason can be a context cause.
func (r StopReason) Error() string { return "stage stopped: " + string(r) }

// Status returns the final status of a stage that stopped for r. It has no meaning for
// StopShutdown, where the stage does not end.
func (r StopReason) Status() StageStatus {
	switch r {
	case StopCancelled:
		return StageCancelled
	case StopSkipped:
		return StageSkipped
	}
	return StageFailure
}

// Stopped returns why ctx was cancelled, "" while it is not. A cancellation without a
// StopReason counts as shutdown, which loses nothing.
func Stopped(ctx context.Context) StopReason {
	if ctx.Err() == nil {
		return ""
	}
	var r StopReason
	if errors.As(context.Cause(ctx), &r) {
		return r
	}
	return StopShutdown
}
