package drift

import "time"

// Remembers reports whether something is remembered of an application.
func (d *Detector) Remembers(id string) bool { return d.subject(id) != nil }

// Sweep is what the detector does from time to time.
func (d *Detector) Sweep(from, to time.Time) { d.sweep(from, to) }
