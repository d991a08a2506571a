package scheduler

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// runStage runs a RUNNING stage, bounded by pctx, the context of its part of the
// deployment. It returns the result after the whole log is stored. The result is
// meaningless while the agent shuts down.
func (r *run) runStage(ctx, pctx context.Context, stage deploy.Stage) (deploy.StageResult, error) {
	left := r.remaining(stage.ID, stage.ID == r.interrupted, stage.Deadline, stage.Timeout)
	app, err := r.s.Store.Application(ctx, r.d.ApplicationID)
	if err != nil {
		return deploy.StageResult{}, err
	}
	log, err := r.openLog(ctx, stage)
	if err != nil {
		return deploy.StageResult{}, err
	}
	if stage.ID == r.interrupted {
		log.Infof("The agent was interrupted here (it restarted, or its database failed); the stage is resumed")
	}
	sctx, stop := context.WithCancelCause(pctx)
	defer stop(nil)
	defer stopAfter(stop, left)()
	r.setStage(stage, stop)
	if !r.enter(stage.Name) {
		return deploy.StageResult{}, nil
	}
	defer r.leave()
	result := r.execute(sctx, deploy.StageRun{
		Application: app, Deployment: r.d.Clone(), Stage: stage, Resumed: stage.ID == r.interrupted, Log: log,
		SaveMetadata: func(ctx context.Context, kv map[string]string) error { return r.saveMetadata(ctx, stage.ID, kv) },
		SwapMetadata: func(ctx context.Context, key, was, value string) error {
			return r.swapMetadata(ctx, stage.ID, key, was, value)
		},
	})
	if result.Interrupted && deploy.Stopped(ctx) == "" { // if it was stopped meanwhile, it ends when it is resumed
		return result, r.awaitStore(ctx, log, result.Reason)
	}
	result = explainStop(result, deploy.Stopped(sctx), r.limit(pctx, stage), r.skipReason(stage.ID))
	switch {
	case result.Reason == "" || result.Status == deploy.StageSuccess || deploy.Stopped(sctx) == deploy.StopShutdown:
	case result.Status == deploy.StageSkipped:
		log.Infof("%s", result.Reason)
	default:
		log.Errorf("%s", result.Reason)
	}
	if deploy.Stopped(ctx) == "" {
		// Retry here: returning the error would run the stage again.
		return result, r.retry(ctx, "cannot store a stage's log; trying again", r.s.logs.flush)
	}
	return result, r.s.logs.flush(context.WithoutCancel(ctx))
}

// awaitStore waits until the store can be used again, and returns why it could not: the stage is then
// resumed.
func (r *run) awaitStore(ctx context.Context, log deploy.StageLog, reason string) error {
	log.Infof("%s", reason)
	if err := r.retry(ctx, "cannot store a stage's log; trying again", r.s.logs.flush); err != nil {
		return err
	}
	return deploy.Errorf(deploy.Unavailable, "a stage was interrupted: %s", reason)
}

// openLog returns the log of a stage before its run. Only interrupted stages and those
// with skipOn can have earlier lines.
func (r *run) openLog(ctx context.Context, stage deploy.Stage) (deploy.StageLog, error) {
	if stage.ID == r.interrupted || len(stage.SkipOn) > 0 {
		return r.s.logs.open(ctx, r.id, stage.ID, r.s.Now)
	}
	return r.s.logs.begin(ctx, r.id, stage.ID, r.s.Now), nil
}

// limit describes the timeout in effect: that of the deployment's part if pctx has
// timed out, else the stage's.
func (r *run) limit(pctx context.Context, stage deploy.Stage) string {
	switch {
	case deploy.Stopped(pctx) != deploy.StopTimedOut:
		return fmt.Sprintf("timed out after %s", stage.Timeout)
	case stage.Rollback:
		return fmt.Sprintf("the rollback timed out after %s (spec.rollback.timeout)", r.d.RollbackTimeout)
	}
	return fmt.Sprintf("the deployment timed out after %s (spec.timeout)", r.d.Timeout)
}

// execute calls the stage's executor. A panic or an invalid result fails the stage, not
// the agent.
func (r *run) execute(ctx context.Context, run deploy.StageRun) (result deploy.StageResult) {
	executor := r.s.Executors[run.Stage.Name]
	if executor == nil {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: fmt.Sprintf("this agent cannot run stage %s", run.Stage.Name)}
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("stage panicked", "stage", run.Stage.ID, "panic", p, "stack", string(debug.Stack()))
			result = deploy.StageResult{Status: deploy.StageFailure, Reason: fmt.Sprintf("internal error in stage %s: %v; please report it with the agent's log", run.Stage.Name, p)}
		}
	}()
	if held := r.s.awaitManaged(ctx, run); held != nil {
		return *held
	}
	result = executor.Execute(ctx, run)
	if deploy.CheckStageTransition(deploy.StageRunning, result.Status) != nil || result.Status == deploy.StageRunning {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: fmt.Sprintf("internal error: stage %s ended as %q; please report it with the agent's log", run.Stage.Name, result.Status)}
	}
	return result
}

// explainStop adds the cause of the stop to the result of a stopped stage: limit
// describes the timeout, skipped the skip request.
func explainStop(result deploy.StageResult, why deploy.StopReason, limit, skipped string) deploy.StageResult {
	if result.Status == deploy.StageSuccess {
		return result // it completed before it noticed the stop
	}
	switch why {
	case deploy.StopCancelled:
		return deploy.StageResult{Status: deploy.StageCancelled, Reason: joinReason("cancelled", result.Reason), NoRollback: result.NoRollback}
	case deploy.StopSkipped:
		return deploy.StageResult{Status: deploy.StageSkipped, Reason: skipped}
	case deploy.StopTimedOut:
		return deploy.StageResult{Status: deploy.StageFailure, Reason: joinReason(limit, result.Reason), NoRollback: result.NoRollback}
	}
	return result
}

// joinReason joins two reasons with a colon; second may be "".
func joinReason(first, second string) string {
	if second == "" {
		return first
	}
	return first + ": " + second
}

// swapMetadata sets one key of a stage's metadata to value if its value is was
// (compare-and-swap).
func (r *run) swapMetadata(ctx context.Context, stageID, key, was, value string) error {
	return r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		s := d.Stage(stageID)
		if s == nil {
			return deploy.Errorf(deploy.NotFound, "deployment %s has no stage %q", d.ID, stageID)
		}
		return s.SwapMetadata(key, was, value, now)
	})
}

// saveMetadata adds kv to a stage's metadata.
func (r *run) saveMetadata(ctx context.Context, stageID string, kv map[string]string) error {
	return r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		s := d.Stage(stageID)
		if s == nil {
			return deploy.Errorf(deploy.NotFound, "deployment %s has no stage %q", d.ID, stageID)
		}
		if s.Metadata == nil {
			s.Metadata = map[string]string{}
		}
		for k, v := range kv {
			s.Metadata[k] = v
		}
		s.UpdatedAt = now
		return nil
	})
}
