package control

import "time"

// Observer is told of every call. Its method must be quick and safe for concurrent use.
type Observer interface {
	// Called tells how a call ended: method is as piped.control.v1.ControlService/GetStatus,
	// one of those that are served, code as NotFound. Streams are told when they end, with
	// the time for which they were open.
	Called(method, code string, stream bool, took time.Duration)
}

// silent is an Observer that nobody asked for.
type silent struct{}

func (silent) Called(string, string, bool, time.Duration) {}
