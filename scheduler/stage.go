package scheduler

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// runStage runs one stage that is RUNNING, within the part of the deployment
// that pctx bounds, and returns how it ended, with its whole log stored. The
// result means nothing if the agent is shutting down.
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
		log.Infof("The agent was interrupted here (it restarted, or its database failed); the stage goes on")
	}
	sctx, stop := context.WithCancelCause(pctx)
	defer stop(nil)
	defer stopAfter(stop, left)()
	r.enter(stage, stop)
	result := r.execute(sctx, deploy.StageRun{
		Application: app, Deployment: r.d.Clone(), Stage: stage, Resumed: stage.ID == r.interrupted, Log: log,
		SaveMetadata: func(ctx context.Context, kv map[string]string) error { return r.saveMetadata(ctx, stage.ID, kv) },
		SwapMetadata: func(ctx context.Context, key, was, value string) error {
			return r.swapMetadata(ctx, stage.ID, key, was, value)
		},
	})
	result = explainStop(result, deploy.Stopped(sctx), r.limit(pctx, stage), r.skipped(stage.ID))
	switch {
	case result.Reason == "" || result.Status == deploy.StageSuccess || deploy.Stopped(sctx) == deploy.StopShutdown:
	case result.Status == deploy.StageSkipped:
		log.Infof("%s", result.Reason)
	default:
		log.Errorf("%s", result.Reason)
	}
	if deploy.Stopped(ctx) == "" {
		// What the stage did must not be done again because its log cannot be stored now.
		return result, r.insist(ctx, "cannot store a stage's log; trying again", r.s.logs.flush)
	}
	return result, r.s.logs.flush(context.WithoutCancel(ctx))
}

// openLog returns the log of a stage that is about to run. Only one that was
// interrupted, or judged by its skipOn, can have lines already.
func (r *run) openLog(ctx context.Context, stage deploy.Stage) (deploy.StageLog, error) {
	if stage.ID == r.interrupted || len(stage.SkipOn) > 0 {
		return r.s.logs.open(ctx, r.id, stage.ID, r.s.Now)
	}
	return r.s.logs.begin(r.id, stage.ID, r.s.Now), nil
}

// limit names the timeout that is over, or would be next: that of the part of
// the deployment if pctx, the part's context, has timed out; else the stage's.
func (r *run) limit(pctx context.Context, stage deploy.Stage) string {
	switch {
	case deploy.Stopped(pctx) != deploy.StopTimedOut:
		return fmt.Sprintf("timed out after %s", stage.Timeout)
	case stage.Rollback:
		return fmt.Sprintf("the rollback timed out after %s (spec.rollback.timeout)", r.d.RollbackTimeout)
	}
	return fmt.Sprintf("the deployment timed out after %s (spec.timeout)", r.d.Timeout)
}

// execute calls the stage's executor. A panic in it ends the stage, not the
// agent; so does a result that ends nothing.
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
	result = executor.Execute(ctx, run)
	if deploy.CheckStageTransition(deploy.StageRunning, result.Status) != nil || result.Status == deploy.StageRunning {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: fmt.Sprintf("internal error: stage %s ended as %q; please report it with the agent's log", run.Stage.Name, result.Status)}
	}
	return result
}

// explainStop makes the result of a stage that was told to stop say so. Limit
// says which timeout it was, skipped who skipped the stage.
func explainStop(result deploy.StageResult, why deploy.StopReason, limit, skipped string) deploy.StageResult {
	if result.Status == deploy.StageSuccess {
		return result // it was done before it noticed
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

func joinReason(first, second string) string {
	if second == "" {
		return first
	}
	return first + ": " + second
}

// swapMetadata is a compare-and-swap of one key.
func (r *run) swapMetadata(ctx context.Context, stageID, key, was, value string) error {
	return r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		s := d.Stage(stageID)
		if s == nil {
			return deploy.Errorf(deploy.NotFound, "deployment %s has no stage %q", d.ID, stageID)
		}
		return s.SwapMetadata(key, was, value, now)
	})
}

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
