package rollout

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// ConfirmLimit bounds how long Conclude waits for the cluster, for all records together.
const ConfirmLimit = 15 * time.Second

// Conclude ends the records of a stage that ends without having waited for them:
// it was stopped, or failed, before it came to Wait, perhaps after a restart.
// It confirms the state of each. A rollout that has ended meanwhile ends as it did, one that
// was not applied is NoRollout, and one that goes on is given up as phase
// (TimedOut or Superseded) because of why. All others are given up, too, when the
// cluster does not answer within ConfirmLimit, or req has no Observer.
//
// It returns an error when a record could not be stored before ctx ended.
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
			select { // the store does not answer, or somebody else wrote
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(firstRetry):
			}
		}
	}
	return nil
}

// conclusion returns the record as it ends by the state that the cluster confirms until ctx
// ends.
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
