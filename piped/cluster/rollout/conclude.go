package rollout

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// ConfirmLimit bounds the time in which Conclude confirms all records with the cluster.
const ConfirmLimit = 15 * time.Second

// Conclude ends the open records of a stage that ends without Wait: the stage was stopped or
// failed before Wait began, perhaps before a restart of the agent. Conclude reads the state
// of each workload from the API server:
//   - A rollout that has ended gets its actual result.
//   - A record whose template was not applied becomes NoRollout. That requires a known
//     IntentDigest.
//   - Any other record becomes phase (TimedOut or Superseded) with the reason why.
//
// A record also becomes phase if the cluster does not answer within ConfirmLimit, or if req
// has no Observer. Conclude retries a store that is unavailable until ctx ends. It returns
// an error if a record could not be stored.
func Conclude(ctx context.Context, req Request, phase deploy.RolloutPhase, why string) error {
	w := newWaiter(req)
	confirming, cancel := context.WithTimeout(ctx, ConfirmLimit)
	defer cancel()
	for _, t := range w.tracks {
		for !t.rec.Phase.Terminal() {
			if err := w.store(ctx, t, w.conclusion(confirming, t, phase, why)); err != nil {
				return err
			}
			if t.rec.Phase.Terminal() {
				break
			}
			select { // the store is unavailable, or another evaluator has written the record
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(firstRetry):
			}
		}
	}
	return nil
}

// conclusion returns the terminal record of t. It uses the actual result of the rollout if
// the cluster confirms one before ctx ends.
func (w *waiter) conclusion(ctx context.Context, t *track, phase deploy.RolloutPhase, why string) deploy.Rollout {
	rec, known := t.rec, false
	if w.req.Observer != nil {
		if s, err := w.req.Observer.Confirm(ctx, rec); err == nil {
			s.Confirmed = true
			v := Evaluate(rec, s, w.policy(), w.now())
			if rec, known = v.Record, true; v.Mark {
				rec = Measured(ctx, w.req.Observer, rec, s)
			}
		}
	}
	if rec.Phase == deploy.RolloutIntent && known && rec.IntentDigest != "" {
		return GivenUp(rec, deploy.RolloutNoRollout, w.now(), "not applied: %s", why)
	}
	return GivenUp(rec, phase, w.now(), "%s", why)
}
