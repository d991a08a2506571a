package cluster

import (
	"net/http"
	"time"
)

// clock estimates how far the API server's clock is ahead of the agent's. The Date header
// of a response shows the API server's time in whole seconds, at a moment between request
// and response. That bounds the difference to a range; the estimate is the intersection of
// all ranges.
type clock struct {
	known    bool
	min, max time.Duration
}

// read returns c narrowed by a response that shows the time at, rounded down to a second.
// Sent and received are times of the agent's clock. A range that does not overlap the
// estimate replaces it, because one of the clocks was adjusted.
func (c clock) read(sent, received, at time.Time) clock {
	next := clock{known: true, min: at.Sub(received), max: at.Add(time.Second).Sub(sent)}
	if c.known && next.min <= c.max && c.min <= next.max {
		next.min, next.max = max(next.min, c.min), min(next.max, c.max)
	}
	return next
}

// ahead returns how far the API server's clock is ahead: the middle of the range, negative
// if it is behind, 0 while the range contains 0.
func (c clock) ahead() time.Duration {
	if c.min <= 0 && c.max >= 0 {
		return 0
	}
	return (c.min + c.max) / 2
}

// noteClock updates the clock from the Date header of a response to a request sent at that
// time. An invalid header is ignored.
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

// Skew returns the estimate, from the responses so far, of how far the API server's clock is
// ahead of the agent's: negative if it is behind, 0 while both may agree. It sends no request.
func (c *Cluster) Skew() time.Duration {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	return c.contact.clock.ahead()
}
