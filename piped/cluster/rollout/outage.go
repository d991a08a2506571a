package rollout

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// leaseLimit bounds the time to read the controllers' Lease.
const leaseLimit = 5 * time.Second

// checkPresence reads the controllers' Lease if that is due. When an outage has ended, it
// postpones the deadlines of all open records by its duration. The first read does the same
// for resumed records if the controllers acquired the Lease after the record was last
// updated.
func (w *waiter) checkPresence(ctx context.Context) error {
	if !w.presence.Due(w.now()) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	lease, err := w.req.Observer.Controllers(limited)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		w.presence.Lost(w.now(), err)
		return nil
	}
	now, first := w.now(), w.presence.unread()
	was := w.presence.Seen(now, lease)
	for _, t := range w.tracks {
		if t.rec.Phase.Terminal() {
			continue
		}
		if first { // there may have been an outage while the agent was not running
			was = w.presence.MissedSince(t.rec.UpdatedAt, now, lease)
		}
		if was > 0 {
			t.rec = Postponed(t.rec, was, now)
			t.next = now
		}
	}
	return nil
}

// policy returns the policy of the request with Since, Returned and Away of the cluster's
// presence.
func (w *waiter) policy() Policy { return w.presence.Policy(w.req.Policy, w.started.Round(0)) }

// Postponed returns rec with its deadlines postponed by the duration of an outage: the times
// from which they count move forward, at most to now.
func Postponed(rec deploy.Rollout, was time.Duration, now time.Time) deploy.Rollout {
	for _, t := range []*time.Time{&rec.LastProgress, &rec.FailingSince, &rec.TroubleSince} {
		if !t.IsZero() {
			*t = earliest(t.Add(was), now)
		}
	}
	return rec
}
