package cluster

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// fence holds the writes to a cluster while the agent has no right to write there. It is
// part of the transport, so that all clients of a cluster pass it, impersonated ones too.
type fence struct {
	permit func(ctx context.Context) error // ClusterConfig.Permit; may be nil
	lease  atomic.Pointer[StoreLease]      // nil: the cluster is used without one
}

// fenceInterval is how often a held write checks whether it may be sent.
const fenceInterval = time.Second

// heldError is the reason why a write was not sent.
type heldError struct{ error }

// Unwrap returns the reason.
func (e heldError) Unwrap() error { return e.error }

// isHeld returns the reason why a request was not sent.
func isHeld(err error) (held heldError, is bool) { return held, errors.As(err, &held) }

// check returns a heldError while the agent may not write. The Lease is checked last: that
// needs no request, and its answer is valid for the shortest time.
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

// wait waits until the agent may write. It returns the cause when ctx ends.
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

// wrap returns a transport that refuses writes while the fence is closed.
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return fenced{f, next} }

type fenced struct {
	fence *fence
	next  http.RoundTripper
}

func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if writes(r) {
		if err := f.fence.check(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as a RoundTripper must
			}
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

// WrappedRoundTripper returns the transport to close.
func (f fenced) WrappedRoundTripper() http.RoundTripper { return f.next }

// unfenced marks the requests by which the agent acquires the right to write.
type unfenced struct{}

func withoutFence(ctx context.Context) context.Context {
	return context.WithValue(ctx, unfenced{}, true)
}

// writes reports whether a request changes the cluster. Dry runs do not.
func writes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return r.Context().Value(unfenced{}) == nil && r.URL.Query().Get("dryRun") == ""
}

// LeaseProblem returns an error of kind Unavailable while an agent with another store
// manages the cluster, as far as that is known now. It sends no request.
func (c *Cluster) LeaseProblem() error { return c.fence.lease.Load().Known() }
