package scheduler

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// minJump is the smallest difference between wall clock and monotonic clock that is
// treated as a jump. Slewed clocks drift much less between two reads.
const minJump = 2 * time.Second

// clockWatch detects wall clock changes, including suspends of the machine.
type clockWatch struct {
	now        func() time.Time
	wall, mono time.Time // at the last read
}

func newClockWatch(now func() time.Time) *clockWatch {
	return &clockWatch{now: now, wall: now().Round(0), mono: time.Now()}
}

// jumped returns the wall clock's jump since the last read: negative if it was set
// back, zero without a jump.
func (c *clockWatch) jumped() time.Duration {
	wall, mono := c.now().Round(0), time.Now()
	by := wall.Sub(c.wall) - mono.Sub(c.mono)
	c.wall, c.mono = wall, mono
	if by.Abs() < minJump {
		return 0
	}
	return by.Round(time.Millisecond)
}

// forwardPart and rollbackPart are the keys of a deployment's two deadlines in
// run.ends; a stage's key is its ID.
const (
	forwardPart  = "/forward"
	rollbackPart = "/rollback"
)

// remaining returns the time left for a part of the deployment or for a stage; negative
// means no limit. In the process that set the deadline, the timeout is measured by the
// monotonic clock. A deadline from an earlier process is compared once with the wall clock;
// the result is at most the timeout.
func (r *run) remaining(what string, resumed bool, deadline time.Time, timeout time.Duration) time.Duration {
	if deadline.IsZero() {
		return -1
	}
	end, known := r.ends[what]
	if !known {
		left := timeout
		if resumed {
			left = min(timeout, deadline.Sub(r.s.Now()))
		}
		end = time.Now().Add(left)
		r.ends[what] = end
	}
	return max(0, time.Until(end))
}

// stopAfter calls stop with StopTimedOut after d; a negative d means never. The
// returned function releases the timer.
func stopAfter(stop context.CancelCauseFunc, d time.Duration) func() {
	if d < 0 {
		return func() {}
	}
	timer := time.AfterFunc(d, func() { stop(deploy.StopTimedOut) })
	return func() { timer.Stop() }
}
