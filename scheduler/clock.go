package scheduler

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// jumpSize is by how much the wall clock must leave the monotonic one to count
// as a jump: clocks that are adjusted slowly differ by much less between looks.
const jumpSize = 2 * time.Second

// clockWatch notices when the wall clock is set, or has gone on while the
// machine slept.
type clockWatch struct {
	now        func() time.Time
	wall, mono time.Time // of the last look
}

func newClockWatch(now func() time.Time) *clockWatch {
	return &clockWatch{now: now, wall: now().Round(0), mono: time.Now()}
}

// jumped returns by how much the wall clock has jumped since the last look,
// negative if it was set back; zero if it has not.
func (c *clockWatch) jumped() time.Duration {
	wall, mono := c.now().Round(0), time.Now()
	by := wall.Sub(c.wall) - mono.Sub(c.mono)
	c.wall, c.mono = wall, mono
	if by.Abs() < jumpSize {
		return 0
	}
	return by.Round(time.Millisecond)
}

// forwardPart and rollbackPart name the parts of a deployment among the things
// of a run that have a deadline; a stage is named by its ID.
const (
	forwardPart  = "/forward"
	rollbackPart = "/rollback"
)

// remaining returns how much time is left for a part of the deployment or for a
// stage; negative is no limit. In the process that set the deadline it is the
// timeout by the monotonic clock, whatever the wall clock does; taken over from
// another process it is what the wall clock had left of it then, never more than
// the timeout.
func (r *run) remaining(what string, takenOver bool, deadline time.Time, timeout time.Duration) time.Duration {
	if deadline.IsZero() {
		return -1
	}
	end, known := r.ends[what]
	if !known {
		left := timeout
		if takenOver {
			left = min(timeout, deadline.Sub(r.s.Now()))
		}
		end = time.Now().Add(left)
		r.ends[what] = end
	}
	return max(0, time.Until(end))
}

// stopAfter stops with StopTimedOut when d has passed; a negative d means never.
// The returned function releases the timer.
func stopAfter(stop context.CancelCauseFunc, d time.Duration) func() {
	if d < 0 {
		return func() {}
	}
	timer := time.AfterFunc(d, func() { stop(deploy.StopTimedOut) })
	return func() { timer.Stop() }
}
