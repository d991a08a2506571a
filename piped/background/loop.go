package background

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/c785c783/piped/piped/deploy"
)

// DefaultScanEvery is the interval of a Loop's scans if no other is configured.
const DefaultScanEvery = 30 * time.Second

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// Feed delivers changes; *store.Watch implements it.
type Feed interface {
	C() <-chan struct{}
	Take() []deploy.Change
	Close()
}

// Queue is the queue of a Loop. A key that is added while it is queued is handled once; one
// that is added while it is handled is handled again.
type Queue = workqueue.TypedRateLimitingInterface[string]

// NewQueue returns an empty Queue.
func NewQueue() Queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))
}

// Loop handles the keys of a queue with several workers: those that a change feed or a
// periodic scan adds. A key whose handling fails is retried with backoff.
type Loop struct {
	Queue     Queue
	Workers   int
	ScanEvery time.Duration
	Rescan    <-chan struct{} // requests of a scan; optional

	// Scan adds the keys of all open work. It is called at the start, and as a fallback for
	// missed changes. Changed adds the keys that changes concern.
	Scan    func(ctx context.Context)
	Changed func(ctx context.Context, changes []deploy.Change)
	// Handle handles a key, concurrently with other keys. Failed logs its error.
	Handle func(ctx context.Context, key string) error
	Failed func(key string, err error)
}

// Run runs the loop until ctx ends and closes the feed. It returns after the workers have
// stopped. It can be called once.
func (l Loop) Run(ctx context.Context, feed Feed) {
	defer feed.Close()
	var workers sync.WaitGroup
	for range l.Workers {
		workers.Go(func() { l.work(ctx) })
	}
	defer workers.Wait()
	defer l.Queue.ShutDown()

	scan := time.NewTicker(l.ScanEvery)
	defer scan.Stop()
	l.Scan(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-feed.C():
			l.Changed(ctx, feed.Take())
		case <-scan.C:
			l.Scan(ctx)
		case <-l.Rescan:
			l.Scan(ctx)
		}
	}
}

func (l Loop) work(ctx context.Context) {
	for {
		key, shutdown := l.Queue.Get()
		if shutdown {
			return
		}
		if err := l.Handle(ctx, key); err != nil && ctx.Err() == nil {
			l.Failed(key, err)
			l.Queue.AddRateLimited(key)
		} else {
			l.Queue.Forget(key)
		}
		l.Queue.Done(key)
	}
}
