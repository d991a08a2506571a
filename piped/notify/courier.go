package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Store is what the courier needs of a *store.Store.
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

// Observer is told what becomes of deliveries. Its methods return at once.
type Observer interface {
	// Delivered: after is since the event.
	Delivered(receiver string, after time.Duration)
	Failed(receiver string)
	GaveUp(receiver string)
}

type noObserver struct{}

func (noObserver) Delivered(string, time.Duration) {}
func (noObserver) Failed(string)                   {}
func (noObserver) GaveUp(string)                   {}

// Config is what a Courier needs.
type Config struct {
	Store    Store
	Observer Observer // nil: nobody

	Concurrency int           // deliveries of one receiver at once; default 4
	Timeout     time.Duration // of one attempt; default 30 s
	GiveUpAfter time.Duration // since the event; default 24 h
	ScanEvery   time.Duration // the safety net behind the change feed; default 30 s
	// Grace is how long what is due is still delivered once the courier is to end;
	// zero means not at all.
	Grace time.Duration

	Logger *slog.Logger
	Now    func() time.Time
	Random func() float64 // from 0 to below 1; default that of math/rand
}

// Courier is a component: call Run once.
type Courier struct {
	Config
	changed chan struct{} // holds a signal when the receivers are others
	ready   chan struct{} // closed once the first ones are served

	unreadable sync.Map // by ID: of what it was logged that it cannot be read

	mu        sync.Mutex
	receivers []Receiver
	version   int // goes up with each SetReceivers
}

// New returns a courier that has not started and has no receivers.
func New(c Config) *Courier {
	if c.Observer == nil {
		c.Observer = noObserver{}
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
	return &Courier{Config: c, changed: make(chan struct{}, 1), ready: make(chan struct{}), version: 1}
}

// SetReceivers makes rs all that there are; no two have one name. A running courier
// takes them over: one that is new is told what happens from then on, of one that is
// gone all that waits is dropped, and what failed is tried again at once.
func (c *Courier) SetReceivers(rs ...Receiver) {
	c.mu.Lock()
	c.receivers, c.version = slices.Clone(rs), c.version+1
	c.mu.Unlock()
	signal(c.changed)
}

// Ready is closed once the courier has taken over the receivers that were set before
// Run: they are told what is committed from then on.
func (c *Courier) Ready() <-chan struct{} { return c.ready }

// current returns what SetReceivers was given last, and which version of it that is.
func (c *Courier) current() ([]Receiver, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.receivers, c.version
}

// Status returns how far each receiver is, in the order of SetReceivers.
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
	default: // there is one already
	}
}

// Bounds of the courier's own work.
const (
	gatherFor   = 50 * time.Millisecond // events that come together are routed together
	routeAtOnce = 500
	storeRetry  = time.Second // after which what the store refused is tried again
	forgetEvery = time.Hour
)

// Run routes and delivers until ctx ends, then what is due for as long as Config.Grace
// says, and returns nil when nothing of it runs any more. What could not be delivered
// is after the next start. It returns no error: what the store refuses is tried again.
func (c *Courier) Run(ctx context.Context) error {
	watch := c.Store.Watch(deploy.TopicEvent)
	defer watch.Close()
	workers := newWorkers(context.WithoutCancel(ctx), c)
	defer workers.end(c.Grace)
	var forgotten time.Time
	for {
		wait := c.ScanEvery
		if err := c.attend(ctx, workers); err != nil && ctx.Err() == nil {
			c.Logger.Warn("notifications wait: the store refuses them; trying again", "error", err)
			wait = storeRetry
		}
		if now := c.Now(); now.Sub(forgotten) >= forgetEvery {
			forgotten = now
			if err := c.Store.ForgetEvents(ctx); err != nil && ctx.Err() == nil {
				c.Logger.Warn("events that were told long ago cannot be forgotten", "error", err)
			}
		}
		if !c.awaitEvent(ctx, watch, wait) {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.Grace, gatherFor))
	defer cancel()
	if err := c.attend(last, workers); err != nil {
		c.Logger.Warn("the last notifications are told after the next start", "error", err)
	}
	return nil
}

// awaitEvent returns when there may be something to do, false when ctx has ended.
func (c *Courier) awaitEvent(ctx context.Context, watch *store.Watch, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-c.changed:
		return true
	case <-watch.C():
	}
	timer.Reset(gatherFor)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	watch.Take()
	return true
}

// attend makes the receivers those that were set last, and routes what has happened.
func (c *Courier) attend(ctx context.Context, workers *workers) error {
	receivers, version := c.current()
	if version != workers.version {
		if err := c.adopt(ctx, receivers, workers); err != nil {
			return err
		}
		workers.version = version
	}
	return c.route(ctx, receivers, workers)
}

// adopt makes the store and the workers serve receivers.
func (c *Courier) adopt(ctx context.Context, receivers []Receiver, workers *workers) error {
	names := make([]string, len(receivers))
	for i, r := range receivers {
		names[i] = r.Name()
	}
	if err := c.Store.RegisterReceivers(ctx, names...); err != nil {
		return err
	}
	if workers.version == 0 {
		close(c.ready)
	} else if err := c.Store.HurryDeliveries(ctx); err != nil {
		return err
	}
	workers.serve(receivers)
	return nil
}

// route leads all events that were not yet to those that want them.
func (c *Courier) route(ctx context.Context, receivers []Receiver, workers *workers) error {
	for {
		events, err := c.Store.Events(ctx, 0, routeAtOnce)
		if err != nil || len(events) == 0 {
			return err
		}
		library := c.newLibrary()
		seqs := make([]int64, len(events))
		var deliveries []deploy.Delivery
		for i, e := range events {
			seqs[i] = e.Seq
			if len(receivers) == 0 {
				continue
			}
			n, err := library.notice(ctx, e, 1)
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
		if len(events) < routeAtOnce {
			return nil
		}
	}
}
