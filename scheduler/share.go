package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// errNoSlot is the error of a run whose deployment must wait, because others have taken the last slot.
var errNoSlot = errors.New("no slot is free")

// wholeStages are the stages that are not interrupted when their deployment is handed over: what they
// have begun cannot be continued by another replica. They are bounded by their timeout.
var wholeStages = map[string]bool{
	deploy.StageScriptRun: true, deploy.StageScriptRunRollback: true, deploy.StageCustomSync: true, deploy.StageCustomSyncRollback: true,
}

// take is update for the start of the deployment. The store counts what runs in all replicas.
func (r *run) take(ctx context.Context, move func(*deploy.Deployment, time.Time) error) error {
	return r.retry(ctx, "cannot start the deployment; trying again", func(ctx context.Context) error {
		limits := r.s.Limits()
		d, started, err := r.s.Store.StartDeployment(ctx, r.d, limits.Deployments, limits.PerCluster, func(d *deploy.Deployment) error { return move(d, r.s.Now()) })
		switch {
		case err != nil:
			return err
		case !started:
			return &deploy.Error{Kind: deploy.Illegal, Err: errNoSlot} // which is not repeated at once
		}
		r.d = d
		return nil
	})
}

// yield ends the run when another replica is to continue it: at once, or at the end of a stage that is
// not interrupted. It returns when ctx ends.
func (r *run) yield(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.work.Moving:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moving = true; !r.whole {
		r.stopRun(deploy.StopShutdown)
	}
}

// enter reports whether a stage may be executed. If the deployment is to be handed over, it ends the
// run instead.
func (r *run) enter(stage string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moving {
		r.stopRun(deploy.StopShutdown)
		return false
	}
	r.whole = wholeStages[stage]
	return true
}

// leave records that the stage has ended.
func (r *run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = false
}
