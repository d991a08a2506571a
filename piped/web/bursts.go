package web

import (
	"sync"
	"time"
)

// burstPause is the minimal time without events between two bursts.
const burstPause = 10 * time.Second

// bursts distinguishes the first event of a burst from later ones, by key.
type bursts struct {
	pause time.Duration

	mu   sync.Mutex
	last map[string]burst
}

type burst struct {
	at time.Time
	n  int // events after the first
}

// maxBursts limits the number of keys.
const maxBursts = 1000

// begins counts an event. It reports whether the event starts a burst, and how many events
// followed the first one of the previous burst.
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
