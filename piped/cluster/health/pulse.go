package health

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// How long a health lasts before it is notified.
const (
	degradedFor    = 30 * time.Second
	progressingFor = 10 * time.Minute // the default progress deadline of a Deployment
	healthyFor     = 30 * time.Second
	flappingFor    = 10 * time.Minute // replaces healthyFor while an application flaps

	// healthLag is how long the observed health may lag behind the end of a deployment.
	healthLag = 2 * time.Second
)

// Pulse debounces the health of an application. It decides when a change to Degraded, or back
// to Healthy, is notified: once, and only after the health has lasted (degradedFor and so on).
// An application that has not been healthy for progressingFor counts as degraded. A suspended
// one counts as healthy, because it is suspended on purpose. After a deployment has ended, a
// change is notified without the delay.
//
// The zero value is an application without notifications and of unknown health. A Pulse is
// not persisted: after a restart of the agent all durations start anew.
type Pulse struct {
	health   deploy.Health
	since    time.Time // when it last became healthy or stopped being healthy
	degraded time.Time // when it last became Degraded; zero unless it is

	notified deploy.Health // the last notification: Degraded, or "" for Healthy or none
	calmed   time.Time     // when Healthy was notified; zero after flappingFor or a Degraded
	flaps    bool          // the last Degraded was notified within flappingFor after a Healthy

	ended time.Time // when the last deployment ended; zero once Verdict has evaluated it
}

// NewPulse returns the Pulse of an application whose last notification was Degraded if
// degraded is true, else Healthy or none.
func NewPulse(degraded bool) *Pulse {
	p := &Pulse{}
	if degraded {
		p.notified = deploy.HealthDegraded
	}
	return p
}

// See records the present health of the application.
func (p *Pulse) See(h deploy.Health, now time.Time) {
	if h == deploy.HealthSuspended {
		h = deploy.Healthy
	}
	if p.since.IsZero() || (h == deploy.Healthy) != (p.health == deploy.Healthy) {
		p.since = now
	}
	switch {
	case h != deploy.HealthDegraded:
		p.degraded = time.Time{}
	case p.degraded.IsZero():
		p.degraded = now
	}
	p.health = h
}

// Deploys records that a deployment of the application is running: all durations start anew.
// The caller repeats it until the deployment ends.
func (p *Pulse) Deploys(now time.Time) {
	p.since, p.ended = now, time.Time{}
	if !p.degraded.IsZero() {
		p.degraded = now
	}
}

// Degraded reports whether the last notification was Degraded.
func (p *Pulse) Degraded() bool { return p.notified == deploy.HealthDegraded }

// For returns how long the application has been healthy or, if it is not healthy, how long
// it has not been.
func (p *Pulse) For(now time.Time) time.Duration { return now.Sub(p.since) }

// Ended records that a deployment of the application has ended.
func (p *Pulse) Ended(now time.Time) { p.ended = now }

// Quiet reports whether no notification can become due without another health or deployment,
// so that the caller may drop the Pulse.
func (p *Pulse) Quiet() bool {
	return p.health == deploy.Healthy && p.notified == "" && !p.flaps && p.ended.IsZero() && p.calmed.IsZero()
}

// Verdict returns the notification that is due now: Degraded, Healthy, or "" for none. Without
// one, next is when to call Verdict again even if nothing else happens; zero for never. The
// caller reports a sent notification by Notified.
func (p *Pulse) Verdict(now time.Time) (notify deploy.Health, next time.Time) {
	due := p.due()
	if !p.ended.IsZero() {
		current := p.ended.Add(healthLag)
		if now.Before(current) {
			return "", current
		}
		p.ended = time.Time{}
		if p.health == deploy.HealthDegraded || p.health == deploy.Healthy {
			due = now
		}
	}
	switch {
	case p.since.IsZero():
		return "", time.Time{}
	case (p.health == deploy.Healthy) == (p.notified == ""):
		return "", p.forget(now)
	case now.Before(due):
		return "", due
	case p.health == deploy.Healthy:
		return deploy.Healthy, time.Time{}
	}
	return deploy.HealthDegraded, time.Time{}
}

// due returns when the present health has lasted long enough to be notified.
func (p *Pulse) due() time.Time {
	switch {
	case p.health == deploy.Healthy && p.flaps:
		return p.since.Add(flappingFor)
	case p.health == deploy.Healthy:
		return p.since.Add(healthyFor)
	}
	due := p.since.Add(progressingFor)
	if soon := p.degraded.Add(degradedFor); !p.degraded.IsZero() && soon.Before(due) {
		return soon
	}
	return due
}

// forget clears calmed and flaps flappingFor after the recovery. It returns when that is due,
// the zero time if nothing remains to be cleared.
func (p *Pulse) forget(now time.Time) time.Time {
	if p.notified != "" || p.calmed.IsZero() {
		return time.Time{}
	}
	if end := p.calmed.Add(flappingFor); now.Before(end) {
		return end
	}
	p.calmed, p.flaps = time.Time{}, false
	return time.Time{}
}

// Notified records that a verdict, Degraded or Healthy, was notified.
func (p *Pulse) Notified(h deploy.Health, now time.Time) {
	if h == deploy.Healthy {
		p.notified, p.calmed = "", now
		return
	}
	p.flaps = !p.calmed.IsZero() && now.Sub(p.calmed) < flappingFor
	p.notified, p.calmed = deploy.HealthDegraded, time.Time{}
}
