package notify

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// env is a store and a courier inside a testing/synctest bubble.
type env struct {
	t       *testing.T
	dsn     string
	store   *store.Store
	courier *Courier
	grace   time.Duration
	metrics counters

	stop  func()
	stops []func() // of couriers that share the store
	ends  chan error
}

func inBubble(t *testing.T, test func(t *testing.T, l *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &env{t: t, dsn: storetest.Ready(t)}
		l.open()
		defer l.close()
		test(t, l)
	})
}

func (l *env) open() {
	l.t.Helper()
	l.store = storetest.Reopen(l.t, l.dsn, time.Now)
}

func (l *env) close() {
	l.end()
	for _, stop := range l.stops {
		stop()
	}
	if err := l.store.Close(); err != nil {
		l.t.Error(err)
	}
}

// run starts a courier with the given receivers and waits until it is idle.
func (l *env) run(receivers ...Receiver) {
	l.courier = New(Config{
		Store: l.store, Metrics: &l.metrics, Grace: l.grace, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)),
		Now: time.Now, Random: func() float64 { return 1 },
	})
	l.courier.SetReceivers(receivers...)
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ends = stop, make(chan error, 1)
	go func() { l.ends <- l.courier.Run(ctx) }()
	synctest.Wait()
}

// end stops the courier if it runs.
func (l *env) end() {
	if l.stop == nil {
		return
	}
	l.stop()
	if err := <-l.ends; err != nil {
		l.t.Error(err)
	}
	l.stop = nil
}

// announce stores events of a deployment and waits until the courier is idle.
func (l *env) announce(deployment string, keys ...string) {
	l.t.Helper()
	for _, key := range keys {
		e := deploy.Event{Key: key, Type: deploy.EventStageStarted, DeploymentID: deployment, Payload: deploy.EventPayload{}.JSON(), At: time.Now()}
		if err := l.store.Announce(context.Background(), e); err != nil {
			l.t.Fatal(err)
		}
	}
	l.pass(batchWindow + time.Millisecond)
}

func (l *env) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *env) state(receiver string) deploy.ReceiverState {
	l.t.Helper()
	states, err := l.courier.Status(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range states {
		if s.Name == receiver {
			return s
		}
	}
	l.t.Fatalf("no state of %s in %+v", receiver, states)
	return deploy.ReceiverState{}
}

// fake is a receiver with scripted results.
type fake struct {
	name string
	// answer returns the result of Deliver; nil means success.
	answer func(ctx context.Context, n Notice) error

	mu       sync.Mutex
	attempts []string
	taken    []string
	at       []time.Time // of the attempts
	busy     int
	most     int // concurrent deliveries at the peak
}

func (f *fake) Name() string                           { return f.name }
func (f *fake) Wants(_ context.Context, _ Notice) bool { return true }
func (f *fake) Order(n Notice) string                  { return n.Event.DeploymentID }

// tries returns how many times something was to be delivered.
func (f *fake) tries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.attempts)
}

func (f *fake) Deliver(ctx context.Context, n Notice) error {
	f.mu.Lock()
	f.attempts, f.at = append(f.attempts, n.Key), append(f.at, time.Now())
	f.busy++
	f.most = max(f.most, f.busy)
	f.mu.Unlock()
	var err error
	if f.answer != nil {
		err = f.answer(ctx, n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	if err == nil {
		f.taken = append(f.taken, n.Key)
	}
	return err
}

// delivered returns the keys of the accepted notices, in order.
func (f *fake) delivered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.taken)
}

// counters implements Metrics.
type counters struct {
	mu                      sync.Mutex
	delivered, failed, gave int
}

func (o *counters) count(n *int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*n++
}

func (o *counters) Delivered(string, time.Duration) { o.count(&o.delivered) }
func (o *counters) Failed(string)                   { o.count(&o.failed) }
func (o *counters) GaveUp(string)                   { o.count(&o.gave) }
