package rollout

import "time"

// Lease is what the Lease of a cluster's controllers shows.
type Lease struct {
	Renewal string        // differs after each renewal; "" when there is no Lease, or it may not be read
	Lasts   time.Duration // how long a renewal is good for

	// Renewed is when it was renewed last, and Acquired when the controllers began that
	// hold it, by the caller's clock; zero where the Lease does not say.
	Renewed, Acquired time.Time
}

func (l Lease) lasts() time.Duration {
	if l.Lasts <= 0 {
		return defaultLease
	}
	return l.Lasts
}

// Times of a Presence.
const (
	presenceInterval = 10 * time.Second // how often the Lease is read
	absenceInterval  = time.Second      // the same while the cluster is away
	defaultLease     = 15 * time.Second // Kubernetes' own default
)

// Presence tells when a cluster was away: its API server did not answer, its
// controllers did not renew their Lease, or the agent did not ask for longer than a
// renewal is good for. The zero value has never asked. All times are the caller's.
type Presence struct {
	lease    Lease
	answered time.Time // when the API server answered last
	renewed  time.Time // when a renewal was seen last
	away     time.Time // since when the cluster is away; zero: it is not
	err      error     // why the API server cannot be asked; nil: it can
	back     time.Time // when the cluster came back last; zero: it was never away
	next     time.Time // when to ask again
}

// Due reports whether the Lease has to be read at now, as it has when the clock was set
// back.
func (p *Presence) Due(now time.Time) bool {
	return !now.Before(p.next) || p.next.Sub(now) > presenceInterval
}

// Next returns when the Lease has to be read next.
func (p *Presence) Next() time.Time { return p.next }

// Unreachable returns why the API server cannot be asked, nil if it can.
func (p *Presence) Unreachable() error { return p.err }

// Lost notes that the API server could not be asked.
func (p *Presence) Lost(now time.Time, err error) {
	if p.away.IsZero() {
		p.away = p.answered
		if p.answered.IsZero() {
			p.away = now
		}
	}
	p.err = err
	p.next = now.Add(absenceInterval)
}

// Seen notes what the Lease shows, and returns how long the cluster was away if it is
// back now: the API server answers, and the controllers have renewed their Lease since
// it does. Without a Lease the answer alone counts.
func (p *Presence) Seen(now time.Time, l Lease) (was time.Duration) {
	// The first reading after an outage is only what a renewal differs from.
	renewed, first := l.Renewal != p.lease.Renewal && p.err == nil, p.unread()
	if p.away.IsZero() && !first && now.Sub(p.answered) >= l.lasts() {
		p.away = p.answered // the agent did not watch: it slept, or its clock was set
	}
	p.lease, p.answered, p.err = l, now, nil
	if renewed || l.Renewal == "" {
		p.renewed = now
	}
	if first && !l.Renewed.IsZero() { // it may have been a while ago
		p.renewed = earliest(l.Renewed, now)
	}
	return p.decide(now)
}

// unread reports whether the API server has not been asked yet.
func (p *Presence) unread() bool { return p.answered.IsZero() && p.away.IsZero() }

// MissedSince returns how long the cluster may have been away between seen, when the caller
// last knew that it was there, and now, when the Lease l is the first that is read: until
// its controllers began anew. Failures then wait as after an outage.
func (p *Presence) MissedSince(seen, now time.Time, l Lease) (was time.Duration) {
	if was = l.Acquired.Sub(seen); l.Acquired.IsZero() || was <= 0 {
		return 0
	}
	p.back = now
	return was
}

// decide says by what was noted whether the cluster is away.
func (p *Presence) decide(now time.Time) (was time.Duration) {
	p.next = now.Add(presenceInterval)
	switch {
	case p.away.IsZero() && now.Sub(p.renewed) >= p.lease.lasts():
		p.away = p.renewed
		p.next = now.Add(absenceInterval)
	case !p.away.IsZero() && p.renewed.Equal(now):
		was, p.away, p.back = now.Sub(p.away), time.Time{}, now
	case !p.away.IsZero():
		p.next = now.Add(absenceInterval)
	}
	return was
}

// Policy returns policy with what the presence means for it; began is when watching did.
func (p *Presence) Policy(policy Policy, began time.Time) Policy {
	policy.Since, policy.Returned = began, false
	if !p.back.IsZero() && !p.back.Before(began) {
		policy.Since, policy.Returned = p.back, true
	}
	switch {
	case p.err != nil:
		policy.Away = "the cluster cannot be asked, no clock runs"
	case !p.away.IsZero():
		policy.Away = "kube-controller-manager does not renew its Lease, no clock runs until it does"
	}
	return policy
}
