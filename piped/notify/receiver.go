package notify

import "context"

// Receiver accepts notices. Its methods must be safe for concurrent use.
type Receiver interface {
	// Name returns a unique name that stays the same over restarts and changes of the
	// receiver's settings.
	Name() string
	// Wants reports whether n is to be delivered to the receiver. The decision depends only on
	// n.
	Wants(ctx context.Context, n Notice) bool
	// Order returns the order key of n. Deliveries with the same key are sent one after
	// another, in the order of their events; "" means no order. Most receivers return
	// Notice.Order.
	Order(n Notice) string
	// Deliver sends n. It can be called again with the same Key. An error of kind
	// deploy.Invalid is permanent; an error with a method RetryAt() time.Time sets the time of
	// the next attempt. Errors must not contain secrets.
	Deliver(ctx context.Context, n Notice) error
}

// Sender delivers the notices that match a route.
type Sender interface {
	Deliver(ctx context.Context, n Notice) error
}

// Routed returns a receiver that delivers through sender each notice that matches at
// least one of the routes. Its order key is Notice.Order.
func Routed(name string, sender Sender, routes ...Route) Receiver {
	return &routed{Sender: sender, name: name, routes: routes}
}

type routed struct {
	Sender
	name   string
	routes []Route
}

func (r *routed) Name() string { return r.name }

func (r *routed) Wants(_ context.Context, n Notice) bool {
	for _, route := range r.routes {
		if route.Matches(n) {
			return true
		}
	}
	return false
}

func (r *routed) Order(n Notice) string { return n.Order() }
