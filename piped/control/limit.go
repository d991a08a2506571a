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

// RateLimit is how many calls may be made with one API key. A call that streams
// counts once.
type RateLimit struct {
	PerSecond int // over time; 0 is no limit
	Burst     int // at once
}

// Calls that are refused because of their credentials are limited by where they
// come from, and what the log tells of them more narrowly still.
const (
	attemptsPerSecond = 10
	attemptsAtOnce    = 100
	warningsEvery     = time.Minute
	warningsAtOnce    = 5
)

// maxBuckets bounds how many callers are told apart. Those that need not be any
// more are looked for once in sweepEvery, however many come.
const (
	maxBuckets = 4096
	sweepEvery = time.Second
)

// limiter is a token bucket for each of many callers. It holds those that have
// called lately, and at most maxBuckets: the others share one.
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

// set changes the limit; every bucket is full again.
func (l *limiter) set(r RateLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.burst = rate.Limit(r.PerSecond), r.Burst
	if r.PerSecond == 0 {
		l.limit = rate.Inf
	}
	clear(l.buckets)
}

// take takes a token of a caller's. When there is none, wait tells when there
// will be one.
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

// spent reports whether a caller has no token left, and takes none.
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

// bucket returns a caller's. Called with mu held.
func (l *limiter) bucket(caller string, now time.Time) *rate.Limiter {
	if bucket := l.buckets[caller]; bucket != nil {
		return bucket
	}
	if len(l.buckets) >= maxBuckets && now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		maps.DeleteFunc(l.buckets, func(_ string, b *rate.Limiter) bool { return b.TokensAt(now) >= float64(l.burst) }) // as good as none
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

func untilNext(bucket *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - bucket.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(bucket.Limit()) * float64(time.Second)))
}

// exhausted tells a caller to wait, in words and as gRPC's RetryInfo.
func exhausted(what string, wait time.Duration) error {
	wait = max(wait.Round(time.Millisecond), time.Millisecond)
	s := status.Newf(codes.ResourceExhausted, "too many calls with %s: try again in %s", what, wait)
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// remoteOf returns the address a call comes from, without its port: "" when it is
// not known.
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

// network returns what stands for all addresses one party has: of IPv6, which is
// given out by networks, the first 64 bits.
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
