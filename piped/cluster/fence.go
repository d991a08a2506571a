package cluster

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// fence holds the writes to a cluster while the agent may not write there. It is part of the
// transport, so that it also covers the impersonating clients (Cluster.As).
type fence struct {
	permit func(ctx context.Context) error // ClusterConfig.Permit; may be nil
	lease  atomic.Pointer[StoreLease]      // nil: the cluster is used without one
}

// fenceInterval is how often a held write checks whether it may be sent.
const fenceInterval = time.Second

// heldError is the error of a write that the fence did not send; it contains the reason.
type heldError struct{ error }

// Unwrap returns the reason.
func (e heldError) Unwrap() error { return e.error }

// isHeld reports whether err means that the fence held a write, and returns the heldError.
func isHeld(err error) (held heldError, is bool) { return held, errors.As(err, &held) }

// check returns a heldError while the agent may not write. It checks the Lease last, because
// that needs no request and its result is valid for the shortest time.
func (f *fence) check(ctx context.Context) error {
	if f.permit != nil {
		if err := f.permit(ctx); err != nil {
			return heldError{err}
		}
	}
	if err := f.lease.Load().permit(); err != nil {
		return heldError{err}
	}
	return nil
}

// wait waits until the agent may write, at least fenceInterval. When ctx ends first, the
// error is its cause.
func (f *fence) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(fenceInterval):
		}
		if f.check(ctx) == nil {
			return nil
		}
	}
}

// wrap returns a transport that refuses writes, with a heldError, while the agent may not
// write.
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return fenced{f, next} }

// fenced is the transport that fence.wrap returns.
type fenced struct {
	fence *fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if writes(r) {
		if err := f.fence.check(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // http.RoundTripper requires it
			}
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

// WrappedRoundTripper returns the transport to close.
func (f fenced) WrappedRoundTripper() http.RoundTripper { return f.next }

// unfenced is the context key of the requests that write the Lease itself.
type unfenced struct{}

// withoutFence returns a context whose writes the fence does not hold.
func withoutFence(ctx context.Context) context.Context {
	return context.WithValue(ctx, unfenced{}, true)
}

// writes reports whether the fence applies to a request: it changes the cluster, which dry
// runs do not, and is not marked by withoutFence.
func writes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return r.Context().Value(unfenced{}) == nil && r.URL.Query().Get("dryRun") == ""
}

// LeaseProblem returns an error of kind Unavailable if, according to the last attempt to
// acquire the Lease, an agent with another store manages the cluster. It sends no request.
func (c *Cluster) LeaseProblem() error { return c.fence.lease.Load().Known() }
