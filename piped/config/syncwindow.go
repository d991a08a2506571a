package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// SyncWindows is spec.syncWindows: when deployments may start.
type SyncWindows []SyncWindow

// SyncWindow is a time that comes again and again, in which deployments may
// start, or may not.
type SyncWindow struct {
	// Kind is what the window does.
	// Required.
	Kind WindowKind `yaml:"kind"`
	// Schedule is when the window begins: minute, hour, day of month, month, day of week.
	// Required.
	Schedule Schedule `yaml:"schedule"`
	// Duration is how long the window lasts, at most a year.
	// Required.
	Duration time.Duration `yaml:"duration"`
	// TimeZone is the time zone of the schedule.
	// Default: `UTC`.
	TimeZone TimeZone `yaml:"timeZone"`
	// ManualSync lets syncs by hand pass.
	ManualSync bool `yaml:"manualSync"`
}

// WindowKind says what a window does.
type WindowKind string

// The kinds of window. Where there is any WindowAllow, deployments start inside
// of one only; WindowDeny is the stronger.
const (
	WindowAllow WindowKind = "allow"
	WindowDeny  WindowKind = "deny"
)

// Values lists the kinds of window.
func (WindowKind) Values() []string { return []string{string(WindowAllow), string(WindowDeny)} }

// Default implements strict.Defaulter.
func (w *SyncWindow) Default() { w.ManualSync = true }

const (
	maxWindow = 366 * 24 * time.Hour
	// lookAhead bounds how far Hold searches for the end of a hold, lookAheadSteps how
	// many beginnings of windows it evaluates.
	lookAhead      = 366 * 24 * time.Hour
	lookAheadSteps = 5000
	maxWindows     = 100
)

func (w SyncWindows) complete(d *strict.Document) {
	if len(w) > maxWindows {
		d.Problemf("syncWindows", "expected at most %d windows, found %d", maxWindows, len(w))
	}
	for i := range w {
		at := fmt.Sprintf("syncWindows[%d]", i)
		if w[i].Kind == "" {
			d.Problemf(at+".kind", "required; expected %s", strict.Alternatives(w[i].Kind.Values()))
		}
		if w[i].Schedule.IsZero() {
			d.Problemf(at+".schedule", "required; expected %s", w[i].Schedule.Expected())
		}
		switch {
		case !d.Has(at + ".duration"):
			d.Problemf(at+".duration", "required; expected a duration such as 8h")
		case w[i].Duration <= 0 || w[i].Duration > maxWindow:
			d.Problemf(at+".duration", "expected a duration above 0 and of at most a year, found %s", w[i].Duration)
		}
	}
}

// Hold reports whether a deployment may start at now; manual is whether a person
// asked for it, whom windows with ManualSync let pass. The reason is "" when it
// may. Otherwise it says for a person why not, and until is the earliest time at
// which it may. That is looked for at most a year ahead: until is then the time
// up to which it may not.
func (w SyncWindows) Hold(now time.Time, manual bool) (until time.Time, reason string) {
	relevant := w.forSync(manual)
	first := relevant.obstacle(now)
	if first == nil {
		return time.Time{}, ""
	}
	o, horizon := first, now.Add(lookAhead)
	for steps := 0; o != nil && o.until.Before(horizon) && steps < lookAheadSteps; steps++ {
		until = o.until
		o = relevant.obstacle(until)
	}
	next := "next opens at "
	if o != nil {
		until, next = o.until, "does not open before "
	}
	how := "sync by hand with pipectl application sync to override"
	if w.forSync(true).obstacle(now) != nil {
		how = "syncs by hand are held as well, unless with --override-sync-windows"
	}
	return until, fmt.Sprintf("%s: %s%s; %s", first.why(), next, until.In(first.TimeZone.Location()).Format("2006-01-02 15:04 MST"), how)
}

// forSync returns the windows that count for a sync. One by hand passes those
// that deny with ManualSync, and those that allow when all of them have it.
func (w SyncWindows) forSync(manual bool) cursors {
	firmAllow := slices.ContainsFunc(w, func(v SyncWindow) bool { return v.Kind == WindowAllow && !v.ManualSync })
	var out cursors
	for _, v := range w {
		passes := v.ManualSync
		if v.Kind == WindowAllow {
			passes = !firmAllow
		}
		if !manual || !passes {
			out = append(out, &cursor{SyncWindow: v})
		}
	}
	return out
}

// cursor is a window at a time that only goes forward.
type cursor struct {
	SyncWindow
	begin time.Time // the first beginning whose window is not over
}

// advance moves the cursor to t. A time far ahead stands for never.
func (c *cursor) advance(t time.Time) {
	if c.begin.Add(c.Duration).After(t) {
		return
	}
	c.begin = c.Schedule.next(t.Add(-c.Duration).In(c.TimeZone.Location()))
	if c.begin.IsZero() {
		c.begin = t.Add(2 * lookAhead)
	}
}

type cursors []*cursor

// obstacle is what does not let a deployment start: a window that denies, or the
// one that allows next.
type obstacle struct {
	*cursor
	until time.Time // the answer does not change before
}

// why says it for a person.
func (o *obstacle) why() string {
	if o.Kind == WindowAllow {
		return "outside the sync windows"
	}
	return fmt.Sprintf("a sync window (%s for %s, %s) denies deployments", o.Schedule, o.Duration, o.TimeZone)
}

// obstacle returns what stands in the way at t, nil when nothing does.
func (cs cursors) obstacle(t time.Time) *obstacle {
	var outside *obstacle
	for _, c := range cs {
		c.advance(t)
		switch active := !c.begin.After(t); {
		case c.Kind == WindowDeny && active:
			return &obstacle{c, c.begin.Add(c.Duration)}
		case c.Kind == WindowDeny:
		case outside == nil || c.begin.Before(outside.until):
			outside = &obstacle{c, c.begin}
		}
	}
	if outside != nil && !outside.until.After(t) {
		return nil // inside the window that begins first
	}
	return outside
}
