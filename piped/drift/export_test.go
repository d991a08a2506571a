package drift

import "time"

// Sweep is what the detector does from time to time.
func (d *Detector) Sweep(from, to time.Time) { d.sweep(from, to) }
