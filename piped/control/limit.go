package control

import (
	"context"
	"net"
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

// rate returns the sustained rate.
func (r RateLimit) rate() rate.Limit {
	if r.PerSecond == 0 {
		return rate.Inf
	}
	return rate.Limit(r.PerSecond)
}

// Limits by network for calls with rejected credentials, and for log lines about them.
const (
	attemptsPerSecond = 10
	attemptsAtOnce    = 100
	warningsEvery     = time.Minute
	warningsAtOnce    = 5
)

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
