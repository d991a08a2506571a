package cluster

import (
	"net/http"
	"time"
)

// clock estimates how far another clock is ahead of the agent's. Each answer shows the
// other clock in whole seconds and with the latency of the request, which bounds the
// difference by a range; the estimate is the intersection of all ranges.
type clock struct {
	known    bool
	min, max time.Duration
}

// read adds an answer that shows the time at, rounded down, to a request sent and received
// at these times. A range outside of the estimate replaces it, because a clock was set.
func (c clock) read(sent, received, at time.Time) clock {
	next := clock{known: true, min: at.Sub(received), max: at.Add(time.Second).Sub(sent)}
	if c.known && next.min <= c.max && c.min <= next.max {
		next.min, next.max = max(next.min, c.min), min(next.max, c.max)
	}
	return next
}

// ahead returns how far the other clock is ahead, 0 while both may agree.
func (c clock) ahead() time.Duration {
	if c.min <= 0 && c.max >= 0 {
		return 0
	}
	return (c.min + c.max) / 2
}

func (c *contact) noteClock(sent time.Time, date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	received := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = c.clock.read(sent, received, at)
}

// Skew returns how far the API server's clock is ahead of the agent's according to the
// answers so far, 0 while both may agree. It sends no request.
func (c *Cluster) Skew() time.Duration {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	return c.contact.clock.ahead()
}
