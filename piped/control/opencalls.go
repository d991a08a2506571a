package control

import (
	"context"
	"sync"
	"time"
)

// openCalls counts running calls over HTTP, so that the server can await and abort them as it
// does calls over gRPC.
type openCalls struct {
	started chan struct{} // closed by start

	mu      sync.Mutex
	aborted context.Context // nil before start and after finish
	abort   context.CancelFunc
	running sync.WaitGroup
}

func newOpenCalls() *openCalls { return &openCalls{started: make(chan struct{})} }

// start admits calls from now on. It must be called once.
func (o *openCalls) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.aborted, o.abort = context.WithCancel(context.Background())
	close(o.started)
}

// begin admits a call, once the server has started, and returns its context. The caller calls
// done at its end. ok is false if the server is stopping or ctx has ended.
func (o *openCalls) begin(ctx context.Context) (_ context.Context, done func(), ok bool) {
	select {
	case <-o.started:
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.aborted == nil {
		return nil, nil, false
	}
	o.running.Add(1)
	ctx, end := context.WithCancel(ctx)
	stop := context.AfterFunc(o.aborted, end)
	return ctx, func() {
		stop()
		end()
		o.running.Done()
	}, true
}

// finish refuses further calls and waits for the running ones. It ends their contexts after the
// grace period.
func (o *openCalls) finish(grace time.Duration) {
	o.mu.Lock()
	o.aborted = nil
	abort := o.abort
	o.mu.Unlock()
	if abort == nil { // never started
		return
	}
	force := time.AfterFunc(grace, abort)
	o.running.Wait()
	force.Stop()
	abort()
}
