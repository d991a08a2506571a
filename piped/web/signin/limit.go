package signin

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// attemptsPerSecond and attemptsAtOnce limit the attempts of one network.
	attemptsPerSecond = 1
	attemptsAtOnce    = 30
	// maxNetworks limits the number of remembered networks.
	maxNetworks = 10_000
)

// attempts limits the sign-in attempts of each network.
type attempts struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// allow counts an attempt. It returns false if there were too many.
func (a *attempts) allow(network string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	limiter := a.of[network]
	if limiter == nil {
		a.forget(now)
		limiter = rate.NewLimiter(attemptsPerSecond, attemptsAtOnce)
		a.of[network] = limiter
	}
	return limiter.AllowN(now, 1)
}

// forget makes room for another network: it drops those that made no attempt lately, or all of
// them if every one did. The caller holds mu.
func (a *attempts) forget(now time.Time) {
	if a.of == nil {
		a.of = map[string]*rate.Limiter{}
	}
	if len(a.of) < maxNetworks {
		return
	}
	for network, limiter := range a.of {
		if limiter.TokensAt(now) >= attemptsAtOnce {
			delete(a.of, network)
		}
	}
	if len(a.of) >= maxNetworks {
		clear(a.of)
	}
}
