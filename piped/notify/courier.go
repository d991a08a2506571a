package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Store is the part of *store.Store that the courier uses.
type Store interface {
	Watch(topics ...deploy.Topic) *store.Watch
	Events(ctx context.Context, afterSeq int64, limit int) ([]deploy.Event, error)
	RegisterReceivers(ctx context.Context, names ...string) error
	RouteEvents(ctx context.Context, seqs []int64, deliveries ...deploy.Delivery) error
	PendingDeliveries(ctx context.Context, receiver string, limit int) (due []deploy.Delivery, next time.Time, err error)
	FinishDelivery(ctx context.Context, d deploy.Delivery) error
	RetryDelivery(ctx context.Context, d deploy.Delivery, next time.Time, why string) error
	GiveUpDelivery(ctx context.Context, d deploy.Delivery, why string) error
	HurryDeliveries(ctx context.Context) error
	ForgetEvents(ctx context.Context) error
	ReceiverStates(ctx context.Context) (map[string]deploy.ReceiverState, error)
	Application(ctx context.Context, id string) (deploy.Application, error)
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
}

// Config holds the dependencies and settings of a Courier.
type Config struct {
	Store   Store
	Metrics Metrics // optional

	// Rights are this replica's rights: to deliver to a receiver, by its name, and to route events
	// (routing). Default all.
	Rights ownership.Rights

	Concurrency int           // concurrent deliveries per receiver; default 4
	Timeout     time.Duration // of one attempt; default 30 s
	GiveUpAfter time.Duration // since the event; default 24 h
	ScanEvery   time.Duration // poll interval, in case the change feed misses an event; default 30 s
	// Grace is how long Run flushes pending deliveries after its context ends; zero
	// means it does not.
	Grace time.Duration

	Logger *slog.Logger
	Now    func() time.Time
	Random func() float64 // in [0, 1); default math/rand
}

// routing is the key of the right to route events.
const routing = "notifications"

// Courier routes events and delivers them. Call Run once.
type Courier struct {
	Config
	changed chan struct{} // signals that SetReceivers was called
	ready   chan struct{} // closed once the first receivers are registered

	setReady func() // closes ready

	registered int  // version of the receivers in the store; 0 if another replica may have changed them
	left       bool // to another replica, at the last attempt to route

	unreadable sync.Map // IDs that were logged as unreadable

	mu        sync.Mutex
	receivers []Receiver
	version   int // incremented by SetReceivers
}

// New returns a Courier with the defaults of c. It delivers nothing before SetReceivers
// is called.
func New(c Config) *Courier {
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Timeout, 30 * time.Second}, {&c.GiveUpAfter, 24 * time.Hour}, {&c.ScanEvery, 30 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Concurrency == 0 {
		c.Concurrency = 4
	}
	ready := make(chan struct{})
	return &Courier{Config: c, changed: make(chan struct{}, 1), ready: ready, setReady: sync.OnceFunc(func() { close(ready) }), version: 1}
}

// SetReceivers replaces all receivers. Their names must be unique. A running courier applies
// the change: a new receiver gets later events, pending deliveries of a removed receiver are
// dropped, and failed deliveries are retried at once.
func (c *Courier) SetReceivers(rs ...Receiver) {
	c.mu.Lock()
	c.receivers, c.version = slices.Clone(rs), c.version+1
	c.mu.Unlock()
	signal(c.changed)
}

// Ready returns a channel that is closed once the receivers set before Run are
// registered, by this or another replica: they get every event committed from then on.
func (c *Courier) Ready() <-chan struct{} { return c.ready }

// current returns the receivers that were set last, and their version.
func (c *Courier) current() ([]Receiver, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.receivers, c.version
}

// Status returns the delivery state of each receiver, in the order of SetReceivers.
func (c *Courier) Status(ctx context.Context) ([]deploy.ReceiverState, error) {
	states, err := c.Store.ReceiverStates(ctx)
	if err != nil {
		return nil, err
	}
	receivers, _ := c.current()
	var out []deploy.ReceiverState
	for _, r := range receivers {
		state := states[r.Name()]
		state.Name = r.Name()
		out = append(out, state)
	}
	return out, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is pending
	}
}

// Timing and batch size of routing.
const (
	batchWindow = 50 * time.Millisecond // debounce: events of one burst are routed in one batch
	routeBatch  = 500
	storeRetry  = time.Second // delay after a failed call of the store
	purgeEvery  = time.Hour
)

// Run routes and delivers until ctx ends. Then it flushes pending deliveries for up to
// Config.Grace and returns nil when all workers have ended. Remaining deliveries are resumed
// after the next start. Failures of the store are retried, not returned.
func (c *Courier) Run(ctx context.Context) error {
	watch := c.Store.Watch(deploy.TopicEvent, deploy.TopicDeliveries)
	defer watch.Close()
	workers := newWorkers(context.WithoutCancel(ctx), c)
	defer workers.end(c.Grace)
	var purged time.Time
	for {
		wait, gained := c.ScanEvery, c.Rights.Gained()
		if err := c.reconcile(ctx, workers); err != nil && !ownership.Over(ctx, err) {
			c.Logger.Warn("cannot route notifications; retrying", "error", err)
			wait = storeRetry
		}
		if now := c.Now(); !c.left && now.Sub(purged) >= purgeEvery {
			purged = now
			if err := c.purge(ctx); err != nil && !ownership.Over(ctx, err) {
				c.Logger.Warn("cannot delete old delivered events", "error", err)
			}
		}
		if !c.awaitEvent(ctx, watch, gained, workers, wait) {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.Grace, batchWindow))
	defer cancel()
	if err := c.reconcile(last, workers); err != nil && !deploy.IsKind(err, deploy.Fenced) {
		c.Logger.Warn("cannot route the last notifications; they are sent after the next start", "error", err)
	}
	return nil
}

// purge deletes old events, with the right to route them.
func (c *Courier) purge(ctx context.Context) error {
	right, ok := c.Rights.Own(ctx, routing)
	if !ok {
		return nil
	}
	defer right.Done()
	return c.Store.ForgetEvents(right.Context)
}

// awaitEvent waits until events may be pending, or this replica gets rights; it returns false when
// ctx has ended. It wakes the workers of receivers for which events wait.
func (c *Courier) awaitEvent(ctx context.Context, watch *store.Watch, gained <-chan struct{}, workers *workers, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-c.changed:
			return true
		case <-gained:
			return true
		case <-watch.C():
		}
		window := time.NewTimer(batchWindow)
		select {
		case <-ctx.Done():
			window.Stop()
			return false
		case <-window.C:
		}
		if workers.wakeAll(watch.Take()) {
			return true
		}
	}
}

// reconcile applies a change of receivers and routes pending events, or leaves that to the replica
// that has the right to.
func (c *Courier) reconcile(ctx context.Context, workers *workers) error {
	receivers, version := c.current()
	right, ok := c.Rights.Own(ctx, routing)
	if !ok {
		if c.left { // the first time, this replica may not have its rights yet
			c.setReady()
		}
		c.registered, c.left = 0, true
		workers.serve(receivers, version)
		return nil
	}
	defer right.Done()
	c.left = false
	if c.registered != version {
		if err := c.applyReceivers(right.Context, receivers, workers, version); err != nil {
			return err
		}
		c.registered = version
	}
	workers.serve(receivers, version)
	return c.route(right.Context, receivers, workers)
}

// applyReceivers registers the receivers in the store.
func (c *Courier) applyReceivers(ctx context.Context, receivers []Receiver, workers *workers, version int) error {
	names := make([]string, len(receivers))
	for i, r := range receivers {
		names[i] = r.Name()
	}
	if err := c.Store.RegisterReceivers(ctx, names...); err != nil {
		return err
	}
	c.setReady()
	if workers.version != 0 && workers.version != version { // the cause of a failure may be fixed
		return c.Store.HurryDeliveries(ctx)
	}
	return nil
}

// route stores a delivery of each pending event for each receiver that wants it.
func (c *Courier) route(ctx context.Context, receivers []Receiver, workers *workers) error {
	for {
		events, err := c.Store.Events(ctx, 0, routeBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		subjects := c.newSubjectCache()
		seqs := make([]int64, len(events))
		var deliveries []deploy.Delivery
		for i, e := range events {
			seqs[i] = e.Seq
			if len(receivers) == 0 {
				continue
			}
			n, err := subjects.notice(ctx, e, 1)
			if err != nil {
				return err
			}
			for _, r := range receivers {
				if r.Wants(ctx, n) {
					deliveries = append(deliveries, deploy.Delivery{Receiver: r.Name(), Order: r.Order(n), Event: e})
				}
			}
		}
		if err := c.Store.RouteEvents(ctx, seqs, deliveries...); err != nil {
			return err
		}
		for _, d := range deliveries {
			workers.wake(d.Receiver)
		}
		if len(events) < routeBatch {
			return nil
		}
	}
}
