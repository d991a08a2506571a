package rollout

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// leaseLimit is how long reading the controllers' Lease may take.
const leaseLimit = 5 * time.Second

// checkPresence finds out whether the cluster is there, when it is time to. When it is
// back, the clocks of all records are moved by the time it was away. So are those of
// records that the agent resumes when its controllers have begun anew meanwhile.
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
		if first { // the agent may have been away with the cluster
			was = w.presence.MissedSince(t.rec.UpdatedAt, now, lease)
		}
		if was > 0 {
			t.rec = Postponed(t.rec, was, now)
			t.next = now
		}
	}
	return nil
}

// policy is the request's with what the presence of the cluster means for it.
func (w *waiter) policy() Policy { return w.presence.Policy(w.req.Policy, w.started.Round(0)) }

// Postponed returns rec with its clocks moved by the time that the cluster was away, none
// of them beyond now.
func Postponed(rec deploy.Rollout, was time.Duration, now time.Time) deploy.Rollout {
	for _, t := range []*time.Time{&rec.LastProgress, &rec.FailingSince, &rec.TroubleSince} {
		if !t.IsZero() {
			*t = earliest(t.Add(was), now)
		}
	}
	return rec
}
