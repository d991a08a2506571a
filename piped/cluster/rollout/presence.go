package rollout

import "time"

// Lease is the state of the Lease by which the cluster's kube-controller-manager elects its
// leader.
type Lease struct {
	Renewal string        // differs after each renewal; "" if there is no Lease or it may not be read
	Lasts   time.Duration // how long a renewal is valid

	// Renewed is when the Lease was last renewed, Acquired when its holder acquired it. Both
	// are by the caller's clock, and zero if the Lease does not contain them.
	Renewed, Acquired time.Time
}

// lasts returns Lasts, or defaultLease if the Lease does not contain it.
func (l Lease) lasts() time.Duration {
	if l.Lasts <= 0 {
		return defaultLease
	}
	return l.Lasts
}

// Intervals of Presence.
const (
	presenceInterval = 10 * time.Second // between reads of the Lease
	absenceInterval  = time.Second      // the same during an outage
	defaultLease     = 15 * time.Second // the default of Kubernetes
)

// Presence detects outages of a cluster: its API server did not answer, its controllers did
// not renew their Lease, or the caller did not read the Lease for longer than a renewal is
// valid. The zero value is ready for use. All times are by the caller's clock.
type Presence struct {
	lease    Lease
	answered time.Time // the last answer of the API server
	renewed  time.Time // the last observed renewal
	away     time.Time // the start of the current outage; zero without one
	err      error     // why the API server does not answer; nil if it does
	back     time.Time // the end of the last outage; zero without one
	next     time.Time // the next read of the Lease
}

// Due reports whether the caller has to read the Lease at now. It also returns true after
// the clock was set back.
func (p *Presence) Due(now time.Time) bool {
	return !now.Before(p.next) || p.next.Sub(now) > presenceInterval
}

// Next returns when the caller has to read the Lease next.
func (p *Presence) Next() time.Time { return p.next }

// Unreachable returns why the API server does not answer, nil if it does.
func (p *Presence) Unreachable() error { return p.err }

// Lost records that a request to the API server failed with err. It starts an outage at the
// last answer before now, or at now if there was none.
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

// Seen records the Lease that the API server returned at now. If that ends an outage, Seen
// returns its duration, otherwise 0. An outage ends when the API server answers and the
// controllers have renewed their Lease since. Without a Lease an answer is sufficient.
func (p *Presence) Seen(now time.Time, l Lease) (was time.Duration) {
	// The first Lease read after an outage is only the baseline that detects a renewal.
	renewed, first := l.Renewal != p.lease.Renewal && p.err == nil, p.unread()
	if p.away.IsZero() && !first && now.Sub(p.answered) >= l.lasts() {
		p.away = p.answered // the agent did not read: it was suspended, or its clock was set
	}
	p.lease, p.answered, p.err = l, now, nil
	if renewed || l.Renewal == "" {
		p.renewed = now
	}
	if first && !l.Renewed.IsZero() { // that may be long before this first read
		p.renewed = earliest(l.Renewed, now)
	}
	return p.decide(now)
}

// unread reports whether no request has been recorded yet.
func (p *Presence) unread() bool { return p.answered.IsZero() && p.away.IsZero() }

// MissedSince returns the duration of an outage that the caller may have missed while it was
// not running: the time from seen, its last contact with the cluster, until the controllers
// acquired l, the first Lease that it reads. It returns 0 if they acquired it before seen.
// After a missed outage Policy grants the same grace period as after an observed one.
func (p *Presence) MissedSince(seen, now time.Time, l Lease) (was time.Duration) {
	if was = l.Acquired.Sub(seen); l.Acquired.IsZero() || was <= 0 {
		return 0
	}
	p.back = now
	return was
}

// decide starts or ends an outage according to the recorded times. It returns the duration
// of an outage that ends, otherwise 0.
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

// Policy returns policy with Since, Returned and Away set. began is when the caller began to
// watch.
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
