package control

import (
	"context"
	"maps"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// RateLimit limits the calls with one API key. A stream counts as one call.
type RateLimit struct {
	PerSecond int // sustained rate; 0 means unlimited
	Burst     int // burst size
}

// Limits by network for calls with rejected credentials, and for log lines about them.
const (
	attemptsPerSecond = 10
	attemptsAtOnce    = 100
	warningsEvery     = time.Minute
	warningsAtOnce    = 5
)

// maxBuckets limits the number of callers with their own bucket. Idle buckets are removed at
// most once per sweepEvery.
const (
	maxBuckets = 4096
	sweepEvery = time.Second
)

// limiter holds one token bucket per recent caller, at most maxBuckets. All other callers
// share one bucket.
type limiter struct {
	now func() time.Time

	mu      sync.Mutex
	limit   rate.Limit
	burst   int
	buckets map[string]*rate.Limiter
	swept   time.Time
}

func newLimiter(limit rate.Limit, burst int, now func() time.Time) *limiter {
	return &limiter{now: now, limit: limit, burst: burst, buckets: map[string]*rate.Limiter{}}
}

// set changes the limit and refills all buckets.
func (l *limiter) set(r RateLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.burst = rate.Limit(r.PerSecond), r.Burst
	if r.PerSecond == 0 {
		l.limit = rate.Inf
	}
	clear(l.buckets)
}

// take takes a token of a caller. If there is none, ok is false and wait is the time until the
// next token.
func (l *limiter) take(caller string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket := l.bucket(caller, now)
	if bucket.AllowN(now, 1) {
		return 0, true
	}
	return untilNext(bucket, now), false
}

// spent reports whether a caller's bucket is empty, without taking a token.
func (l *limiter) spent(caller string) (wait time.Duration, spent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket := l.bucket(caller, now)
	if bucket.TokensAt(now) >= 1 {
		return 0, false
	}
	return untilNext(bucket, now), true
}

// bucket returns the token bucket of a caller, which is the ID of an API key or a network, and
// creates it if necessary. If there are too many, it removes full ones, or returns a bucket
// that all further callers share. The caller of this function holds mu.
func (l *limiter) bucket(caller string, now time.Time) *rate.Limiter {
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

// exhausted returns the error of an exceeded rate limit, with a gRPC RetryInfo.
func exhausted(what string, wait time.Duration) error {
	wait = max(wait.Round(time.Millisecond), time.Millisecond)
	s := status.Newf(codes.ResourceExhausted, "too many calls with %s: try again in %s", what, wait)
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// remoteOf returns the client's address without port, or "".
func remoteOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}

// network returns the key by which the rejected calls of a host are counted: the /64
// network of an IPv6 address, or the host itself.
func network(host string) string {
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Unmap().Is6() {
		return host
	}
	prefix, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}
