package drift

import "time"

// Remembers reports whether the detector has state of an application.
func (d *Detector) Remembers(id string) bool { return d.appState(id) != nil }

// Sweep runs one sweep.
func (d *Detector) Sweep(from, to time.Time) { d.sweep(from, to) }
