package notify

import "context"

// Receiver is told notices. Its methods are called by several goroutines at once.
type Receiver interface {
	// Name tells it from all others, also after a restart and with another
	// configuration.
	Name() string
	// Wants reports whether it is to be told. It looks at nothing but the notice.
	Wants(ctx context.Context, n Notice) bool
	// Order joins notices that are handed over in the order of their events, each
	// after the one before it was taken or given up; "" waits for nothing. Notice.Order
	// is what most receivers return.
	Order(n Notice) string
	// Deliver hands over a notice, and may be asked to do so again with the same Key.
	// An error of kind deploy.Invalid says that it will never be taken. One that has a
	// method RetryAt() time.Time says when to try again. It tells no secret.
	Deliver(ctx context.Context, n Notice) error
}

// Sender delivers what a route leads to it.
type Sender interface {
	Deliver(ctx context.Context, n Notice) error
}

// Routed returns the receiver that is told by sender what one of the routes matches,
// once, in the order of Notice.Order.
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
