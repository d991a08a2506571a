package web

import (
	"sync"
	"time"
)

// burstPause is how long nothing comes between two bursts.
const burstPause = 10 * time.Second

// bursts tells the first event of a burst, by key, from those that follow.
type bursts struct {
	pause time.Duration

	mu   sync.Mutex
	last map[string]burst
}

type burst struct {
	at time.Time
	n  int // events after the first
}

// maxBursts bounds the keys that are remembered.
const maxBursts = 1000

// begins counts an event, and reports whether it begins a burst and how many events
// followed the first one of the burst before.
func (b *bursts) begins(key string, now time.Time) (begins bool, before int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, ok := b.last[key]
	if begins = !ok || now.Sub(last.at) >= b.pause; begins {
		before, last.n = last.n, -1
	}
	if b.last == nil || len(b.last) >= maxBursts {
		b.last = map[string]burst{}
	}
	b.last[key] = burst{now, last.n + 1}
	return begins, before
}
