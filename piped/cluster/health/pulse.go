package health

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// How long an application is in a health before that is told.
const (
	degradedFor    = 30 * time.Second
	progressingFor = 10 * time.Minute // on its way, and never there: as long as Kubernetes gives a Deployment
	healthyFor     = 30 * time.Second
	flappingFor    = 10 * time.Minute // in place of healthyFor, for what was degraded again so soon

	// settling is how long what is seen may lag behind the end of a deployment.
	settling = 2 * time.Second
)

// Pulse follows the health of an application and decides when a change of it is told:
// only two are, to Degraded and back to Healthy, each once, and each only after it has
// lasted, so that what comes and goes floods nobody. What is on its way for long is as
// good as degraded; what is suspended is so on purpose, and as good as healthy. At the
// end of a deployment it is judged at once.
//
// The zero value is of an application of which nothing was told and nothing is known.
// A Pulse keeps no health before its time of birth: after a restart everything lasts
// from then on.
type Pulse struct {
	health   deploy.Health
	since    time.Time // since when it is healthy, or is not
	degraded time.Time // since when it is degraded without pause; zero unless it is

	told   deploy.Health // Degraded, or "" for Healthy
	calmed time.Time     // when it was told to be Healthy again, zero if it never was
	flaps  bool          // it was degraded again soon after that

	ended time.Time // a deployment of it has ended then, and it was not judged since
}

// NewPulse returns the pulse of an application of which was told last that it is
// degraded, or not.
func NewPulse(degraded bool) *Pulse {
	p := &Pulse{}
	if degraded {
		p.told = deploy.HealthDegraded
	}
	return p
}

// See notes how the application is now.
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

// Deploys notes that a deployment of the application is under way: what is seen until
// it ends does not count.
func (p *Pulse) Deploys(now time.Time) {
	p.since, p.ended = now, time.Time{}
	if !p.degraded.IsZero() {
		p.degraded = now
	}
}

// Degraded reports whether it was told last that the application is degraded.
func (p *Pulse) Degraded() bool { return p.told == deploy.HealthDegraded }

// For returns for how long the application has been healthy, or has not been.
func (p *Pulse) For(now time.Time) time.Duration { return now.Sub(p.since) }

// Ended notes that a deployment of the application has ended.
func (p *Pulse) Ended(now time.Time) { p.ended = now }

// Quiet reports whether there is nothing to be told, whatever time passes.
func (p *Pulse) Quiet() bool {
	return p.health == deploy.Healthy && p.told == "" && !p.flaps && p.ended.IsZero() && p.calmed.IsZero()
}

// Verdict returns what is to be told now, Degraded or Healthy, "" for nothing, and when
// to ask again although nothing else is seen, the zero time for never.
func (p *Pulse) Verdict(now time.Time) (tell deploy.Health, next time.Time) {
	due := p.due()
	if !p.ended.IsZero() {
		settled := p.ended.Add(settling)
		if now.Before(settled) {
			return "", settled
		}
		p.ended = time.Time{}
		if p.health == deploy.HealthDegraded || p.health == deploy.Healthy {
			due = now
		}
	}
	switch {
	case p.since.IsZero():
		return "", time.Time{}
	case (p.health == deploy.Healthy) == (p.told == ""):
		return "", p.forget(now)
	case now.Before(due):
		return "", due
	case p.health == deploy.Healthy:
		return deploy.Healthy, time.Time{}
	}
	return deploy.HealthDegraded, time.Time{}
}

// due is when what is seen has lasted long enough.
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

// forget forgets that the application was degraded once it is healthy for long. It
// returns when that is.
func (p *Pulse) forget(now time.Time) time.Time {
	if p.told != "" || p.calmed.IsZero() {
		return time.Time{}
	}
	if end := p.calmed.Add(flappingFor); now.Before(end) {
		return end
	}
	p.calmed, p.flaps = time.Time{}, false
	return time.Time{}
}

// Told notes that a verdict was told.
func (p *Pulse) Told(h deploy.Health, now time.Time) {
	if h == deploy.Healthy {
		p.told, p.calmed = "", now
		return
	}
	p.flaps = !p.calmed.IsZero() && now.Sub(p.calmed) < flappingFor
	p.told, p.calmed = deploy.HealthDegraded, time.Time{}
}
