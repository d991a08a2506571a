package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryInterval is the interval of checks.
	memoryInterval = 15 * time.Second
	// quietBytes is the maximum allocation in one interval of an idle agent.
	quietBytes = 4 << 20
	// worthBytes is the minimum allocation since the last release that justifies
	// another one.
	worthBytes = 32 << 20
)

// giveBackMemory returns unused heap memory to the system when the agent becomes idle
// after much work, until ctx ends. The runtime alone retains about twice the used
// memory for a long time.
func giveBackMemory(ctx context.Context) {
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	m := memory{last: allocated()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if m.due(allocated()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// memory decides when to release memory.
type memory struct {
	last  uint64 // allocated bytes at the last check
	since uint64 // allocated bytes at the last release
}

// due reports whether to release memory, given the bytes allocated since the start.
func (m *memory) due(allocated uint64) bool {
	quiet := allocated-m.last < quietBytes
	m.last = allocated
	if !quiet || allocated-m.since < worthBytes {
		return false
	}
	m.since = allocated
	return true
}

// allocated returns the bytes allocated since the start of the program.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
