package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryInterval is between two looks at the memory.
	memoryInterval = 15 * time.Second
	// quietBytes is how little is allocated from one look to the next while the agent
	// has next to nothing to do.
	quietBytes = 4 << 20
	// worthBytes is how much must have been allocated since memory was given back for
	// it to be worth the work again.
	worthBytes = 32 << 20
)

// giveBackMemory returns to the system what is left of the heap after much work, as
// soon as the agent has little to do, until ctx ends: the runtime itself keeps, for a
// long time, about twice what is in use.
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

// memory tells when it is worth giving some back.
type memory struct {
	last  uint64 // bytes that had been allocated at the last look
	since uint64 // and when some was given back last
}

// due reports whether memory is to be given back, now that so many bytes have been
// allocated since the start.
func (m *memory) due(allocated uint64) bool {
	quiet := allocated-m.last < quietBytes
	m.last = allocated
	if !quiet || allocated-m.since < worthBytes {
		return false
	}
	m.since = allocated
	return true
}

// allocated returns how many bytes the program has allocated since it was started.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
