package control

import "time"

// Metrics counts calls. Its method must be fast and safe for concurrent use.
type Metrics interface {
	// Called records the end of a call. The method is of the form
	// piped.control.v1.ControlService/GetStatus and is one that is served; the code is of
	// the form NotFound. For a stream, took is how long it was open.
	Called(method, code string, stream bool, took time.Duration)
}

// noMetrics discards the counts.
type noMetrics struct{}

func (noMetrics) Called(string, string, bool, time.Duration) {}
