package notify

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// workers manages one worker per receiver. It is not safe for concurrent use.
type workers struct {
	courier *Courier
	version int // of the receivers that were applied; 0 before the first
	byName  map[string]*worker

	ctx    context.Context // of all deliveries
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func newWorkers(ctx context.Context, c *Courier) *workers {
	ctx, cancel := context.WithCancel(ctx)
	return &workers{courier: c, byName: map[string]*worker{}, ctx: ctx, cancel: cancel}
}

// serve starts a worker for each new receiver and cancels those of removed ones, unless the
// version is served already. The workers of other receivers continue.
func (ws *workers) serve(receivers []Receiver, version int) {
	if ws.version == version {
		return
	}
	ws.version = version
	gone := ws.byName
	ws.byName = map[string]*worker{}
	for _, r := range receivers {
		w := gone[r.Name()]
		delete(gone, r.Name())
		if w == nil {
			w = ws.start(r)
		} else {
			w.receiver.Store(&r)
			signal(w.wakeup)
		}
		ws.byName[r.Name()] = w
	}
	for _, w := range gone {
		w.cancel()
	}
}

func (ws *workers) start(r Receiver) *worker {
	ctx, cancel := context.WithCancel(ws.ctx)
	w := &worker{
		Courier: ws.courier, name: r.Name(), cancel: cancel, wakeup: make(chan struct{}, 1), closing: make(chan struct{}),
		done: make(chan int64),
	}
	w.receiver.Store(&r) // before run, which delivers pending deliveries at once
	ws.group.Go(func() { w.hold(ctx) })
	return w
}

// wake signals the worker of a receiver that deliveries may be pending.
func (ws *workers) wake(receiver string) {
	if w := ws.byName[receiver]; w != nil {
		signal(w.wakeup)
	}
}

// wakeAll wakes the workers of receivers for which events wait. It reports whether there may be
// events to route, too.
func (ws *workers) wakeAll(changes []deploy.Change) (route bool) {
	for _, change := range changes {
		if change.Topic == deploy.TopicDeliveries {
			ws.wake(change.ID)
		} else {
			route = true
		}
	}
	return route
}

// end lets the workers flush due deliveries for at most grace, and waits for them.
func (ws *workers) end(grace time.Duration) {
	if grace > 0 {
		for _, w := range ws.byName {
			close(w.closing)
		}
		timer := time.AfterFunc(grace, ws.cancel)
		defer timer.Stop()
	} else {
		ws.cancel()
	}
	ws.group.Wait()
	ws.cancel()
}

// worker sends the deliveries of one receiver.
type worker struct {
	*Courier
	name     string
	receiver atomic.Pointer[Receiver]
	cancel   context.CancelFunc
	wakeup   chan struct{} // signals that deliveries may be pending
	closing  chan struct{} // closed to end the worker once nothing is due
	done     chan int64    // sequence numbers of ended attempts

	over atomic.Bool // the right of this run is over

	queue []deploy.Delivery // due, not started
	busy  map[int64]bool    // sequence numbers of running attempts
	next  time.Time         // of the next retry; zero when there is none
}

// queueSize limits how many deliveries are read at once.
const queueSize = 100

// hold delivers while this replica has the right to, until ctx ends or the worker is closed.
func (w *worker) hold(ctx context.Context) {
	defer w.cancel()
	for {
		gained := w.Rights.Gained()
		if right, ok := w.Rights.Own(ctx, w.name); ok {
			w.run(right.Context, right.Moving)
			right.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-w.closing:
			return
		case <-gained:
		}
	}
}

// run delivers until ctx ends, or, after closing is closed, until nothing is due. After moving is
// closed, or the right is over, it ends with the attempts that have begun.
func (w *worker) run(ctx context.Context, moving <-chan struct{}) {
	var group sync.WaitGroup
	defer group.Wait()
	w.queue, w.busy, w.next = nil, map[int64]bool{}, time.Time{} // another replica may have delivered since
	w.over.Store(false)
	closing, ending, leaving, stale := w.closing, false, false, true
	for {
		leaving = leaving || w.over.Load()
		if stale && len(w.queue) == 0 && !leaving {
			stale = !w.load(ctx)
		}
		for len(w.queue) > 0 && len(w.busy) < w.Concurrency && !leaving {
			d := w.queue[0]
			w.queue = w.queue[1:]
			w.busy[d.Event.Seq] = true
			group.Go(func() { w.attempt(ctx, d) })
		}
		if (ending || leaving) && len(w.busy) == 0 {
			return
		}
		timer := w.timer(stale)
		select {
		case <-ctx.Done():
			return
		case seq := <-w.done:
			delete(w.busy, seq)
		case <-w.wakeup:
		case <-timer.C:
		case <-closing:
			closing, ending = nil, true
		case <-moving:
			moving, leaving = nil, true
		}
		timer.Stop()
		stale = true
	}
}

// timer returns a timer for the next retry or poll. refused means that the last read of the
// store failed and is repeated soon.
func (w *worker) timer(refused bool) *time.Timer {
	after := w.ScanEvery
	if refused && len(w.queue) == 0 {
		after = storeRetry
	}
	if !w.next.IsZero() {
		after = min(after, max(w.next.Sub(w.Now()), 0))
	}
	return time.NewTimer(after)
}

// load queues the due deliveries that are not running. It reports whether the store
// could be read.
func (w *worker) load(ctx context.Context) bool {
	due, next, err := w.Store.PendingDeliveries(ctx, w.name, queueSize+len(w.busy))
	if err != nil {
		if !ownership.Over(ctx, err) {
			w.Logger.Warn("cannot read pending notifications; retrying", "receiver", w.name, "error", err)
		}
		w.next = time.Time{}
		return false
	}
	w.next = next
	for _, d := range due {
		if !w.busy[d.Event.Seq] {
			w.queue = append(w.queue, d)
		}
	}
	return true
}

// attempt sends d and stores the result, unless the right to the receiver is over.
func (w *worker) attempt(ctx context.Context, d deploy.Delivery) {
	if again, ok := w.Rights.Own(ctx, w.name); ok { // the process may have been suspended since d was read
		again.Done()
		err := w.deliver(ctx, d)
		if err == nil || ctx.Err() == nil { // otherwise the shutdown cancelled it: not a failure of the receiver
			w.complete(ctx, d, err)
		}
	} else {
		w.over.Store(true)
	}
	select {
	case w.done <- d.Event.Seq:
	case <-ctx.Done():
	}
}

func (w *worker) deliver(ctx context.Context, d deploy.Delivery) error {
	n, err := w.newSubjectCache().notice(ctx, d.Event, d.Attempts+1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	return (*w.receiver.Load()).Deliver(ctx, n)
}

// complete stores the result of an attempt. It retries until the store accepts the
// result, because a delivery without a stored result is sent again.
func (w *worker) complete(ctx context.Context, d deploy.Delivery, failure error) {
	store, log := w.outcome(d, failure)
	for {
		err := store(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		if deploy.IsKind(err, deploy.Fenced) {
			w.over.Store(true)
			return // the replica that has the receiver now sends it again
		}
		w.Logger.Warn("cannot store the result of a notification; retrying", "receiver", w.name, "event", d.Event.Key, "error", err)
		timer := time.NewTimer(storeRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return // it is sent again after the next start
		}
	}
	log()
}

// outcome decides the result of an attempt: done, dead letter, or retry. It returns a
// function that stores the result and one that records it in metrics and log.
func (w *worker) outcome(d deploy.Delivery, failure error) (store func(context.Context) error, report func()) {
	now, attempt := w.Now(), d.Attempts+1
	log := w.Logger.With("receiver", w.name, "event", d.Event.Key, "attempt", attempt)
	switch {
	case failure == nil:
		return func(ctx context.Context) error { return w.Store.FinishDelivery(ctx, d) },
			func() { w.Metrics.Delivered(w.name, now.Sub(d.Event.At)) }
	case deploy.IsKind(failure, deploy.Invalid) || attempt >= leastAttempts && now.Sub(d.Event.At) >= w.GiveUpAfter:
		return func(ctx context.Context) error { return w.Store.GiveUpDelivery(ctx, d, failure.Error()) },
			func() {
				w.Metrics.GaveUp(w.name)
				log.Error("gave up on a notification", "error", failure)
			}
	}
	next := w.retryAt(failure, attempt, now)
	return func(ctx context.Context) error { return w.Store.RetryDelivery(ctx, d, next, failure.Error()) },
		func() {
			w.Metrics.Failed(w.name)
			log.Warn("cannot deliver a notification; retrying", "at", next, "error", failure)
		}
}

// Retry policy.
const (
	firstRetry    = time.Second
	lastRetry     = 5 * time.Minute
	longestWait   = 2 * time.Hour // maximum for an error's RetryAt: rate limits of hosts last an hour
	leastAttempts = 5
)

// retryAt returns the time of the next attempt: the time that the error requires, at most
// longestWait away so that later deliveries of the same order are not blocked, or else the
// time by backoff.
func (w *worker) retryAt(failure error, attempt int, now time.Time) time.Time {
	var details interface{ RetryAt() time.Time }
	if errors.As(failure, &details) {
		if at, latest := details.RetryAt(), now.Add(longestWait); at.After(latest) {
			return latest
		} else if at.After(now) {
			return at
		}
	}
	return now.Add(backoff(attempt, w.Random()))
}

// backoff returns the delay after the given attempt: between 50% and 100% of the full delay,
// chosen by random, so that deliveries that failed together are spread out.
func backoff(attempt int, random float64) time.Duration {
	full := lastRetry
	if shift := attempt - 1; shift < 9 { // 2^9 s exceeds lastRetry
		full = min(full, firstRetry<<shift)
	}
	return full/2 + time.Duration(random*float64(full/2))
}
