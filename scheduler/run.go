package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// run drives one deployment from PLANNED, or from its interruption, to its end. It
// belongs to one goroutine; others may only call cancel and skip.
type run struct {
	s            *Scheduler
	id, provider string
	log          *slog.Logger

	d     deploy.Deployment // as last read or written
	known bool              // d is PLANNED and was just read by the scheduler; see load

	// resumedStatus is the deployment's status when this run loaded it. interrupted is
	// the stage that was RUNNING then, "" for none.
	resumedStatus deploy.Status
	interrupted   string

	ends map[string]time.Time // deadlines by the monotonic clock; see remaining

	mu        sync.Mutex
	cancelled bool
	stop      context.CancelCauseFunc // stops the forward stages; nil before they begin
	skips     map[string]string       // skip reasons by stage ID
	stage     string                  // the stage that stopStage stops
	stopStage context.CancelCauseFunc

	work    ownership.Work          // the right to the deployment
	stopRun context.CancelCauseFunc // ends the run as a shutdown does
	moving  bool                    // another replica is to continue
	whole   bool                    // the stage is not interrupted for that
}

func newRun(s *Scheduler, d deploy.Deployment, work ownership.Work) *run {
	return &run{
		s: s, id: d.ID, provider: d.Provider, work: work, d: d, known: d.Status == deploy.Planned, ends: map[string]time.Time{}, skips: map[string]string{},
		log: s.Logger.With("app", d.ApplicationName, "deployment", d.ID, "commit", d.Trigger.Commit.Short()),
	}
}

// cancel stops the forward stages after a cancel request was stored. It has no effect
// after they have ended.
func (r *run) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = true
	if r.stop != nil {
		r.stop(deploy.StopCancelled)
	}
}

// drive runs the deployment to its end. It returns nil when the deployment is completed
// or the agent shuts down.
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
		if err := r.runForward(ctx); err != nil {
			return err
		}
	}
	if r.d.Status == deploy.RollingBack {
		return r.rollBack(ctx)
	}
	return nil
}

// load reads the deployment, because the scheduler's copy may be outdated: an earlier
// run could have completed it. A PLANNED copy is used as it is, since the start fails
// if it is outdated. From then on only this run changes the status.
func (r *run) load(ctx context.Context) error {
	d, known := r.d, r.known
	r.known = false
	if !known {
		var err error
		if d, err = r.s.Store.Deployment(ctx, r.id); err != nil && !deploy.IsKind(err, deploy.NotFound) {
			return err
		}
	}
	r.d, r.resumedStatus, r.interrupted = d, d.Status, ""
	for _, stage := range d.Stages {
		if stage.Status == deploy.StageRunning {
			r.interrupted = stage.ID
		}
	}
	return nil
}

// start moves the deployment to RUNNING together with its first stage, or to FAILURE if
// it can no longer run.
func (r *run) start(ctx context.Context) error {
	blocker, err := r.startBlocker(ctx)
	if err != nil {
		return err
	}
	write := r.update
	if r.s.shared && blocker == "" {
		write = r.take
	}
	err = write(ctx, func(d *deploy.Deployment, now time.Time) error {
		switch {
		case d.Status != deploy.Planned:
			return deploy.Errorf(deploy.Conflict, "deployment %s is %s, not PLANNED", d.ID, d.Status)
		case blocker != "":
			return d.Complete(deploy.Failure, blocker, now)
		}
		if err := d.Start(now); err != nil {
			return err
		}
		return startNext(d, now)
	})
	if deploy.IsKind(err, deploy.Conflict) {
		return nil // cancelled or superseded concurrently
	}
	if err == nil && blocker == "" {
		r.log.Info("deployment started")
	}
	r.logEnd()
	return err
}

// startBlocker returns why a planned deployment must not start, "" if it may.
func (r *run) startBlocker(ctx context.Context) (string, error) {
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

// runForward runs the forward stages until one fails, all are done, or the agent shuts
// down.
func (r *run) runForward(ctx context.Context) error {
	fctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer stopAfter(stop, r.remaining(forwardPart, r.resumedStatus == deploy.Running, r.d.Deadline, r.d.Timeout))()
	r.mu.Lock()
	r.stop = stop
	if r.cancelled || cancelOf(&r.d) != nil {
		stop(deploy.StopCancelled)
	}
	r.mu.Unlock()

	for r.d.Status == deploy.Running {
		var err error
		switch stage := current(r.d.ForwardStages()); {
		case stage == nil: // no stages, all skipped, or the process died before the end was stored
			err = r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
				return advance(d, deploy.StageResult{Status: deploy.StageSuccess}, now)
			})
		case stage.Status == deploy.StageNotStarted:
			err = r.startOrSkip(ctx, fctx, *stage)
		default:
			err = r.runForwardStage(ctx, fctx, *stage)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
	r.logEnd()
	return nil
}

// startOrSkip starts a forward stage, unless its skipOn applies or the deployment was
// cancelled during the evaluation of skipOn.
func (r *run) startOrSkip(ctx, fctx context.Context, stage deploy.Stage) error {
	reason, err := r.evaluateSkipOn(fctx, stage)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		switch {
		case cancelOf(d) != nil:
			return advance(d, deploy.StageResult{Status: deploy.StageSuccess}, now)
		case reason == "" && skipOf(d.Stage(stage.ID)) == nil:
			return d.StartStage(stage.ID, now)
		case reason == "":
			return startNext(d, now)
		}
		if err := d.FinishStage(stage.ID, deploy.StageSkipped, reason, now); err != nil {
			return err
		}
		return startNext(d, now)
	})
}

// runForwardStage runs a forward stage to its end, and advances the deployment.
func (r *run) runForwardStage(ctx, fctx context.Context, stage deploy.Stage) error {
	result, err := r.runStage(ctx, fctx, stage)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return r.update(ctx, func(d *deploy.Deployment, now time.Time) error {
		result := applySkip(d.Stage(stage.ID), result)
		if err := d.FinishStage(stage.ID, result.Status, result.Reason, now); err != nil {
			return err
		}
		return advance(d, result, now)
	})
}

// rollBack runs all rollback stages that have something to undo, even after one fails.
// It completes the deployment with the outcome stored at the begin of the rollback.
func (r *run) rollBack(ctx context.Context) error {
	rctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer stopAfter(stop, r.remaining(rollbackPart, r.resumedStatus == deploy.RollingBack, r.d.Deadline, r.d.RollbackTimeout))()
	for stage := current(r.d.RollbackStages()); stage != nil; stage = current(r.d.RollbackStages()) {
		if stage.Status == deploy.StageNotStarted {
			if err := r.update(ctx, func(d *deploy.Deployment, now time.Time) error { return startRollbackStage(d, stage.ID, now) }); err != nil {
				return err
			}
			continue
		}
		result, err := r.runStage(ctx, rctx, *stage)
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
		r.logEnd()
	}
	return err
}

// logEnd logs the outcome of the deployment if it has completed.
func (r *run) logEnd() {
	if r.d.Status.Completed() {
		log := r.log.Info
		if r.d.Status == deploy.Failure {
			log = r.log.Warn
		}
		log("deployment completed", "status", r.d.Status, "reason", r.d.StatusReason, "took", r.d.CompletedAt.Sub(r.d.CreatedAt))
	}
}

// update writes a transition. It retries until ctx ends if the store fails, since the
// run cannot continue without the write. An illegal transition and a lost race are
// returned at once.
func (r *run) update(ctx context.Context, move func(*deploy.Deployment, time.Time) error) error {
	return r.retry(ctx, "cannot write the deployment's state; trying again", func(ctx context.Context) error {
		d, err := r.s.Store.UpdateDeploymentFrom(ctx, r.d, func(d *deploy.Deployment) error { return move(d, r.s.Now()) })
		if err == nil {
			r.d = d
		}
		return err
	})
}

// retry repeats do with backoff until it succeeds, ctx ends, or the error is permanent.
func (r *run) retry(ctx context.Context, failed string, do func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 1 << 30, Cap: 10 * time.Second}
	for {
		err := do(ctx)
		switch deploy.KindOf(err) {
		case deploy.Conflict, deploy.Illegal, deploy.NotFound, deploy.Invalid, deploy.Fenced:
			return err
		}
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			r.log.Error(failed, "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(backoff.Step()):
		}
	}
}
