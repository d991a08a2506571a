package cluster

import (
	"net/http"
	"time"
)

// clock is what is known of how far another clock is ahead of the agent's. The other one
// is read in whole seconds, in answers that were on their way: each gives a range, and
// what lies in all of them is the better known the more there are.
type clock struct {
	known    bool
	min, max time.Duration
}

// read takes account of an answer that came at received, to a request of sent, and says
// that it was at, rounded down. A range that fits no earlier one begins anew: a clock was set.
func (c clock) read(sent, received, at time.Time) clock {
	next := clock{known: true, min: at.Sub(received), max: at.Add(time.Second).Sub(sent)}
	if c.known && next.min <= c.max && c.min <= next.max {
		next.min, next.max = max(next.min, c.min), min(next.max, c.max)
	}
	return next
}

// ahead returns how far the other clock is ahead, 0 while both may be the same.
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

// Skew returns how far the clock of the cluster's API server is ahead of the agent's,
// by the answers so far; 0 while both may be the same. It asks nothing.
func (c *Cluster) Skew() time.Duration {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	return c.contact.clock.ahead()
}
