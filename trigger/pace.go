package trigger

import (
	"math/rand/v2"
	"time"
)

const (
	// maxSlowDown bounds the backoff of a failing repository, in intervals.
	maxSlowDown = 8
	// quickInterval is the interval in the time movingFor after a repository's head has moved,
	// because commits often come in series. A repository with an interval above quickBelow is
	// polled no more often: its webhook announces commits.
	quickInterval = 2 * time.Second
	movingFor     = 30 * time.Second
	quickBelow    = time.Minute
	// maxCredits bounds the quick polls in a row. Each poll at the interval earns one, so that in
	// the long run a repository that always moves is polled at most twice as often as an idle one.
	maxCredits = int(movingFor / quickInterval)
)

// pace determines when a repository is polled.
type pace struct {
	interval time.Duration
	moved    time.Time // when the head was last seen to move; zero: not yet
	spent    int       // quick polls that no poll at the interval has earned yet
}

// next returns the time from the end of a poll, which took some time, to the beginning of the next
// one, after a number of consecutive failures. From one beginning to the next, it is never more than
// the interval, of which up to a tenth is left out so that repositories of one host are not polled at
// the same time. But a poll that takes long is followed by a pause as long, up to an interval.
func (p *pace) next(now time.Time, took time.Duration, failures int) time.Duration {
	quick := failures == 0 && !p.moved.IsZero() && now.Sub(p.moved) < movingFor && p.spent < maxCredits &&
		quickInterval < p.interval && p.interval <= quickBelow
	pause := p.interval
	if quick {
		p.spent++
		pause = quickInterval
	} else {
		p.spent = max(0, p.spent-1)
	}
	pause *= time.Duration(min(1<<min(failures, 10), maxSlowDown))
	pause -= time.Duration(float64(pause) * 0.1 * rand.Float64())
	return max(pause-took, min(took, pause))
}
