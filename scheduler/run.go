package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/c785c783/piped/piped/deploy"
)

// run carries one deployment from PLANNED, or from where it was interrupted, to
// its end. It belongs to one goroutine; only cancel is called by others.
type run struct {
	s            *Scheduler
	id, provider string
	log          *slog.Logger

	d deploy.Deployment // as last read or written

	// interrupted is the stage that was RUNNING when the deployment was taken
	// up, "" if none was.
	interrupted string

	mu        sync.Mutex
	cancelled bool
	stop      context.CancelCauseFunc // stops the forward part, once it goes on
}

func newRun(s *Scheduler, d deploy.Deployment) *run {
	return &run{
		s: s, id: d.ID, provider: d.Provider,
		log: s.Logger.With("app", d.ApplicationName, "deployment", d.ID, "commit", d.Trigger.Commit.Short()),
	}
}

// cancel stops the forward part because the stored deployment was given a
// cancel. Too late, it does nothing.
func (r *run) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = true
	if r.stop != nil {
		r.stop(deploy.StopCancelled)
	}
}

// drive is the whole life of a running deployment. It returns nil when the
// deployment is completed or the agent shuts down.
func (r *run) drive(ctx context.Context) error {
	if err := r.load(ctx); err != nil {
		return err
	}
	if r.d.Status == deploy.Planned {
		if err := r.start(ctx); err != nil {
			return err
		}
	}
	if r.d.Status == deploy.Running {
		if err := r.goForward(ctx); err != nil {
			return err
		}
	}
	if r.d.Status == deploy.RollingBack {
		return r.rollBack(ctx)
	}
	return nil
}

// load reads the deployment. What the scheduler knew when it made the run may be
// old: a run that has just ended could have completed the deployment. From here
// on this run alone moves it on.
func (r *run) load(ctx context.Context) error {
	d, err := r.s.Store.Deployment(ctx, r.id)
	if err != nil && !deploy.IsKind(err, deploy.NotFound) {
		return err
	}
	r.d, r.interrupted = d, ""
	for _, stage := range d.Stages {
		if stage.Status == deploy.StageRunning {
			r.interrupted = stage.ID
		}
	}
	return nil
}

// start moves the deployment to RUNNING together with its first stage, unless
// it can no longer run.
func (r *run) start(ctx context.Context) error {
	refusal, err := r.refusal(ctx)
	if err != nil {
		return err
	}
	err = r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		switch {
		case d.Status != deploy.Planned:
			return deploy.Errorf(deploy.Conflict, "deployment %s is %s, not PLANNED", d.ID, d.Status)
		case refusal != "":
			return d.Complete(deploy.Failure, refusal, now)
		}
		if err := d.Start(now); err != nil {
			return err
		}
		return startNext(d, now)
	})
	if deploy.IsKind(err, deploy.Conflict) {
		return nil // cancelled or superseded a moment ago
	}
	if err == nil && refusal == "" {
		r.log.Info("deployment started")
	}
	r.ended()
	return err
}

// refusal says why a planned deployment must not start, "" if it may.
func (r *run) refusal(ctx context.Context) (string, error) {
	app, err := r.s.Store.Application(ctx, r.d.ApplicationID)
	switch {
	case deploy.IsKind(err, deploy.NotFound), err == nil && app.Deleted:
		return "The application was deleted before the deployment started", nil
	case err != nil:
		return "", err
	case app.Disabled:
		return "The application was disabled before the deployment started", nil
	case !slices.Contains(r.s.Providers(), r.d.Provider):
		return fmt.Sprintf("The platform provider %q is no longer in the agent's configuration", r.d.Provider), nil
	}
	return "", nil
}

// goForward runs the forward stages until one fails, all are done, or the agent
// shuts down.
func (r *run) goForward(ctx context.Context) error {
	fctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer stopAfter(stop, r.remaining(r.d.Deadline, r.d.Timeout))()
	r.mu.Lock()
	r.stop = stop
	if r.cancelled || cancelOf(&r.d) != nil {
		stop(deploy.StopCancelled)
	}
	r.mu.Unlock()

	for r.d.Status == deploy.Running {
		stage := current(r.d.ForwardStages())
		if stage == nil { // every stage had ended when the process died
			return r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
				return settle(d, deploy.StageResult{Status: deploy.StageSuccess}, now)
			})
		}
		result, err := r.runStage(fctx, *stage)
		if err != nil || ctx.Err() != nil {
			return err
		}
		err = r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
			if err := d.FinishStage(stage.ID, result.Status, result.Reason, now); err != nil {
				return err
			}
			return settle(d, result, now)
		})
		if err != nil {
			return err
		}
	}
	r.ended()
	return nil
}

// rollBack runs the rollback stages, all of them whatever the earlier ones did,
// and completes the deployment with the outcome decided when it began.
func (r *run) rollBack(ctx context.Context) error {
	rctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer stopAfter(stop, r.remaining(r.d.Deadline, r.d.RollbackTimeout))()
	for {
		stage := current(r.d.RollbackStages())
		if stage == nil {
			break
		}
		if stage.Status == deploy.StageNotStarted {
			if err := r.update(ctx, func(d *deploy.Deployment, now time.Time) error { return d.StartStage(stage.ID, now) }); err != nil {
				return err
			}
			stage = r.d.Stage(stage.ID)
		}
		result, err := r.runStage(rctx, *stage)
		if err != nil || ctx.Err() != nil {
			return err
		}
		err = r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
			return d.FinishStage(stage.ID, result.Status, result.Reason, now)
		})
		if err != nil {
			return err
		}
	}
	err := r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		return d.Complete(d.Outcome, rollbackReason(d), now)
	})
	if err == nil {
		r.ended()
	}
	return err
}

func (r *run) ended() {
	if r.d.Status.Completed() {
		r.log.Info("deployment completed", "status", r.d.Status, "reason", r.d.StatusReason, "took", r.d.CompletedAt.Sub(r.d.CreatedAt))
	}
}

// runStage runs one stage that is RUNNING and returns how it ended, with its
// whole log stored. The result means nothing if the agent is shutting down.
func (r *run) runStage(ctx context.Context, stage deploy.Stage) (deploy.StageResult, error) {
	app, err := r.s.Store.Application(context.WithoutCancel(ctx), r.d.ApplicationID) // a stopped stage is told, too
	if err != nil {
		return deploy.StageResult{}, err
	}
	log, err := r.s.logs.open(context.WithoutCancel(ctx), r.id, stage.ID, r.s.Now)
	if err != nil {
		return deploy.StageResult{}, err
	}
	sctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer stopAfter(stop, r.remaining(stage.Deadline, stage.Timeout))()
	result := r.execute(sctx, deploy.StageRun{
		Application: app, Deployment: r.d.Clone(), Stage: stage, Resumed: stage.ID == r.interrupted, Log: log,
		SaveMetadata: func(ctx context.Context, kv map[string]string) error { return r.saveMetadata(ctx, stage.ID, kv) },
	})
	result = explainStop(result, deploy.Stopped(sctx), r.limit(ctx, stage))
	if result.Status != deploy.StageSuccess && result.Reason != "" && deploy.Stopped(sctx) != deploy.StopShutdown {
		log.Errorf("%s", result.Reason)
	}
	return result, r.s.logs.flush(context.WithoutCancel(ctx))
}

// limit names the timeout that is over, or would be next: that of the part of
// the deployment if ctx, the part's context, has timed out; else the stage's.
func (r *run) limit(ctx context.Context, stage deploy.Stage) string {
	switch {
	case deploy.Stopped(ctx) != deploy.StopTimedOut:
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
// says which timeout it was.
func explainStop(result deploy.StageResult, why deploy.StopReason, limit string) deploy.StageResult {
	if result.Status == deploy.StageSuccess {
		return result // it was done before it noticed
	}
	switch why {
	case deploy.StopCancelled:
		return deploy.StageResult{Status: deploy.StageCancelled, Reason: joinReason("cancelled", result.Reason), NoRollback: result.NoRollback}
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

// update writes a move. A store that fails is asked again until ctx ends, for a
// move that cannot be written must not be taken; a move the table forbids and a
// lost race are returned at once.
func (r *run) update(ctx context.Context, move func(*deploy.Deployment, time.Time) error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 1 << 30, Cap: 10 * time.Second}
	for {
		d, err := r.s.Store.UpdateDeployment(ctx, r.id, func(d *deploy.Deployment) error { return move(d, r.s.Now()) })
		switch deploy.KindOf(err) {
		case deploy.Conflict, deploy.Illegal, deploy.NotFound, deploy.Invalid:
			return err
		}
		if err == nil {
			r.d = d
			return nil
		}
		if ctx.Err() == nil {
			r.log.Error("cannot write the deployment's state; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(backoff.Step()):
		}
	}
}

// remaining turns a stored deadline into a duration. In the process that set
// it, that is the whole timeout by the monotonic clock; after a restart it is
// what the wall clock has left of it, never more than the timeout.
func (r *run) remaining(deadline time.Time, timeout time.Duration) time.Duration {
	if deadline.IsZero() {
		return -1
	}
	return max(0, min(timeout, deadline.Sub(r.s.Now())))
}

// stopAfter stops with StopTimedOut when d has passed; a negative d means never.
// The returned function releases the timer.
func stopAfter(stop context.CancelCauseFunc, d time.Duration) func() {
	if d < 0 {
		return func() {}
	}
	timer := time.AfterFunc(d, func() { stop(deploy.StopTimedOut) })
	return func() { timer.Stop() }
}
