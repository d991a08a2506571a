package rollout

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Conclude ends the records of a stage that ends without having waited for them:
// it was stopped, or failed, before it came to Wait, perhaps after a restart.
// Each is looked at once more. What ended meanwhile ends as it did, what was not
// applied is NoRollout, and what is going on still is given up as phase
// (TimedOut or Superseded) because of why. So is all when the cluster cannot be
// asked, or req has no Observer.
//
// It returns an error when a record could not be stored before ctx ended.
func Conclude(ctx context.Context, req Request, phase deploy.RolloutPhase, why string) error {
	w := newWaiter(req)
	for _, t := range w.tracks {
		for !t.rec.Phase.Terminal() {
			if err := w.store(ctx, t, w.conclusion(ctx, t, phase, why)); err != nil {
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

// conclusion is the end of a record by a last look.
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
