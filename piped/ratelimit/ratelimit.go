// Package ratelimit limits how often callers do something: one token bucket for each caller, in
// bounded memory.
package ratelimit

import (
	"maps"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxBuckets limits the number of callers with their own bucket. Idle buckets are removed at
// most once per sweepEvery.
const (
	maxBuckets = 4096
	sweepEvery = time.Second
)

// Limiter holds one token bucket per recent caller, at most maxBuckets. All other callers
// share one bucket. Its methods are safe for concurrent use.
type Limiter struct {
	now func() time.Time

	mu      sync.Mutex
	limit   rate.Limit
	burst   int
	buckets map[string]*rate.Limiter
	swept   time.Time
}

// New returns a limiter that permits a rate, and a burst at once, to each caller. now is
// time.Now.
func New(limit rate.Limit, burst int, now func() time.Time) *Limiter {
	return &Limiter{now: now, limit: limit, burst: burst, buckets: map[string]*rate.Limiter{}}
}

// Set changes the limit and refills all buckets.
func (l *Limiter) Set(limit rate.Limit, burst int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.burst = limit, burst
	clear(l.buckets)
}

// Take takes a token of a caller. If there is none, ok is false and wait is the time until the
// next token.
func (l *Limiter) Take(caller string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket := l.bucket(caller, now)
	if bucket.AllowN(now, 1) {
		return 0, true
	}
	return untilNext(bucket, now), false
}

// Spent reports whether a caller's bucket is empty, without taking a token.
func (l *Limiter) Spent(caller string) (wait time.Duration, spent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket := l.bucket(caller, now)
	if bucket.TokensAt(now) >= 1 {
		return 0, false
	}
	return untilNext(bucket, now), true
}

// bucket returns the token bucket of a caller, and creates it if
// necessary. If there are too many, it removes full ones, or returns a bucket
// that all further callers share. The caller of this function holds mu.
func (l *Limiter) bucket(caller string, now time.Time) *rate.Limiter {
	if bucket := l.buckets[caller]; bucket != nil {
		return bucket
	}
	if len(l.buckets) >= maxBuckets && now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		maps.DeleteFunc(l.buckets, func(_ string, b *rate.Limiter) bool { return b.TokensAt(now) >= float64(l.burst) }) // full, equal to a new one
	}
	if len(l.buckets) >= maxBuckets {
		caller = ""
		if bucket := l.buckets[caller]; bucket != nil {
			return bucket
		}
	}
	bucket := rate.NewLimiter(l.limit, l.burst)
	l.buckets[caller] = bucket
	return bucket
}

// untilNext returns the time until the bucket has a token for one call.
func untilNext(bucket *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(bucket.Limit()) * float64(time.Second)))
}

// Network returns the key by which the attempts of a host are counted: the /64 network of an
// IPv6 address, since one sender usually has all of it, or the host itself.
func Network(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
