package deploy

import (
	"context"
	"errors"
)

// StageRun is one run of one stage, as the scheduler hands it to an executor.
// After a restart the same stage is handed over again with Resumed set: what
// the executor recorded before is in the stage's metadata and in the rollout
// records.
type StageRun struct {
	Application Application
	Deployment  Deployment
	Stage       Stage
	Resumed     bool
	Log         StageLog

	// SaveMetadata merges keys into the stage's metadata and returns when they
	// are stored: an intent written with it survives a crash that follows.
	SaveMetadata func(ctx context.Context, kv map[string]string) error
	// SwapMetadata stores a key's value if it still is as the stage was handed it, ""
	// when it is missing. Otherwise the error is of kind Conflict: the stage runs twice.
	SwapMetadata func(ctx context.Context, key, was, value string) error
}

// First reports whether no stage of the deployment ran before this one.
func (r StageRun) First() bool {
	forward := r.Deployment.ForwardStages()
	return !r.Resumed && len(forward) > 0 && forward[0].ID == r.Stage.ID
}

// StageResult is how a stage ended.
type StageResult struct {
	Status StageStatus // SUCCESS, FAILURE, CANCELLED, SKIPPED or EXITED
	Reason string      // for a person: what failed, why, and where possible what to do
	// NoRollback forbids the automatic rollback: someone else changed the
	// workload, and undoing that is not ours to decide.
	NoRollback bool
}

// StageLog is the log of one stage, for the people who wait for it. Its methods
// never block on input or output and are safe for concurrent use; lines are
// stored in batches, all of them before the stage's end is stored.
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

// StopReason is why a running stage is told to stop. It is the cause of the
// stage's context (context.Cause).
type StopReason string

// The reasons to stop a stage.
const (
	// StopCancelled: a person cancelled the deployment. The stage ends CANCELLED.
	StopCancelled StopReason = "cancelled"
	// StopTimedOut: the stage's or the deployment's deadline passed. FAILURE.
	StopTimedOut StopReason = "timed out"
	// StopSkipped: a person skipped the stage. The stage ends SKIPPED.
	StopSkipped StopReason = "skipped"
	// StopShutdown: the agent is ending. The stage does not end: it is run
	// again, resumed, after the next start.
	StopShutdown StopReason = "agent is shutting down"
)

// Error makes a StopReason a context cause.
func (r StopReason) Error() string { return "stage stopped: " + string(r) }

// Status returns the status in which a stage ends that was told to stop and
// did. For StopShutdown, where the stage does not end, it means nothing.
func (r StopReason) Status() StageStatus {
	switch r {
	case StopCancelled:
		return StageCancelled
	case StopSkipped:
		return StageSkipped
	}
	return StageFailure
}

// Stopped returns the reason ctx was cancelled for; "" while it is not. A
// cancellation without a StopReason counts as shutdown, which loses nothing.
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
