package kubernetes

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// concludeLimit bounds how long a stage that ends reads the cluster and stores its records.
const concludeLimit = rollout.ConfirmLimit + 5*time.Second

// readAgain is the pause before another read of a store that did not answer.
const readAgain = 250 * time.Millisecond

// conclude ends the open rollout records of a failed or stopped stage, including those of
// an interrupted run. If the agent shuts down it ends none, because the resumed stage waits
// for them. It waits for a store that does not answer: no later step ends the records, and the stage's own
// end cannot be stored meanwhile.
func (w *work) conclude(ctx context.Context, reason string) error {
	phase, why := deploy.RolloutSuperseded, "given up because the stage failed: "+reason
	switch deploy.Stopped(ctx) {
	case deploy.StopShutdown:
		return nil
	case deploy.StopTimedOut:
		phase, why = deploy.RolloutTimedOut, "the stage's time ran out"
	case deploy.StopCancelled:
		why = "the stage was cancelled"
	case deploy.StopSkipped:
		why = "the stage was skipped"
	}
	open, err := w.openRecords(ctx)
	if err != nil || len(open) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeLimit)
	defer cancel()
	return rollout.Conclude(ctx, rollout.Request{
		Records: open, Observer: w.cluster.Rollouts, Policy: w.policy(), Save: w.saveEnd, Now: w.Now,
	}, phase, why)
}

// openRecords reads the open records of the stage. While the store does not answer, it tries again until
// ctx ends, or, if ctx has ended already, for as long as concludeLimit.
func (w *work) openRecords(ctx context.Context) ([]deploy.Rollout, error) {
	if ctx.Err() != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeLimit)
		defer cancel()
		ctx = limited
	}
	for {
		open, err := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: w.run.Deployment.ID, StageID: w.run.Stage.ID, OpenOnly: true})
		if !deploy.IsKind(err, deploy.Unavailable) {
			return open, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(readAgain):
		}
	}
}
