package notify

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// workers are one worker for each receiver. Its methods have one caller.
type workers struct {
	courier *Courier
	version int // of the receivers that are served; 0 is none yet
	byName  map[string]*worker

	ctx    context.Context // of what they deliver
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func newWorkers(ctx context.Context, c *Courier) *workers {
	ctx, cancel := context.WithCancel(ctx)
	return &workers{courier: c, byName: map[string]*worker{}, ctx: ctx, cancel: cancel}
}

// serve has a worker run for each of the receivers and for no other. One that ran
// before goes on with what it is about.
func (ws *workers) serve(receivers []Receiver) {
	gone := ws.byName
	ws.byName = map[string]*worker{}
	for _, r := range receivers {
		w := gone[r.Name()]
		delete(gone, r.Name())
		if w == nil {
			w = ws.start(r)
		} else {
			w.receiver.Store(&r)
			signal(w.look)
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
		Courier: ws.courier, name: r.Name(), cancel: cancel, look: make(chan struct{}, 1), closing: make(chan struct{}),
		done: make(chan int64), busy: map[int64]bool{},
	}
	w.receiver.Store(&r) // before it runs: what waits since the last start is delivered at once
	ws.group.Go(func() { w.run(ctx) })
	return w
}

// wake tells the worker of a receiver that there is something for it.
func (ws *workers) wake(receiver string) {
	if w := ws.byName[receiver]; w != nil {
		signal(w.look)
	}
}

// end lets the workers deliver what is due for as long as grace lasts, and waits for
// them.
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

// worker hands over the deliveries of one receiver.
type worker struct {
	*Courier
	name     string
	receiver atomic.Pointer[Receiver]
	cancel   context.CancelFunc
	look     chan struct{} // holds a signal when there may be something new
	closing  chan struct{} // closed when it is to end once nothing is due
	done     chan int64    // the numbers of those that were handed over or failed

	queue []deploy.Delivery // due, and not begun
	busy  map[int64]bool    // begun
	next  time.Time         // when one that failed is due; zero when none is
}

// queueSize bounds what is read of the store at once.
const queueSize = 100

// run delivers until ctx ends, or until nothing is due once it is to end.
func (w *worker) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	defer w.cancel()
	closing, ending, stale := w.closing, false, true
	for {
		if stale && len(w.queue) == 0 {
			stale = !w.load(ctx)
		}
		for len(w.queue) > 0 && len(w.busy) < w.Concurrency {
			d := w.queue[0]
			w.queue = w.queue[1:]
			w.busy[d.Event.Seq] = true
			group.Go(func() { w.attempt(ctx, d) })
		}
		if ending && len(w.busy) == 0 {
			return
		}
		timer := w.timer(stale)
		select {
		case <-ctx.Done():
			return
		case seq := <-w.done:
			delete(w.busy, seq)
		case <-w.look:
		case <-timer.C:
		case <-closing:
			closing, ending = nil, true
		}
		timer.Stop()
		stale = true
	}
}

// timer fires when there may be something to do although nobody says so. Refused: the
// store did not answer.
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

// load reads what is due and not begun, and reports whether the store answered.
func (w *worker) load(ctx context.Context) bool {
	due, next, err := w.Store.PendingDeliveries(ctx, w.name, queueSize+len(w.busy))
	if err != nil {
		if ctx.Err() == nil {
			w.Logger.Warn("notifications wait: the store does not tell them; trying again", "receiver", w.name, "error", err)
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

// attempt hands over d and stores what became of it.
func (w *worker) attempt(ctx context.Context, d deploy.Delivery) {
	err := w.deliver(ctx, d)
	if err == nil || ctx.Err() == nil { // else it was not the receiver that ended it
		w.settle(ctx, d, err)
	}
	select {
	case w.done <- d.Event.Seq:
	case <-ctx.Done():
	}
}

func (w *worker) deliver(ctx context.Context, d deploy.Delivery) error {
	n, err := w.newLibrary().notice(ctx, d.Event, d.Attempts+1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	return (*w.receiver.Load()).Deliver(ctx, n)
}

// settle stores what became of an attempt. It tries until the store takes it: what
// was handed over is not to be handed over again for a store that was busy.
func (w *worker) settle(ctx context.Context, d deploy.Delivery, failure error) {
	store, log := w.outcome(d, failure)
	for {
		err := store(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		w.Logger.Warn("what became of a notification cannot be stored; trying again", "receiver", w.name, "event", d.Event.Key, "error", err)
		timer := time.NewTimer(storeRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return // it is handed over again after the next start
		}
	}
	log()
}

// outcome decides on an attempt: how to store what becomes of the delivery, and how to
// tell of it.
func (w *worker) outcome(d deploy.Delivery, failure error) (store func(context.Context) error, tell func()) {
	now, attempt := w.Now(), d.Attempts+1
	log := w.Logger.With("receiver", w.name, "event", d.Event.Key, "attempt", attempt)
	switch {
	case failure == nil:
		return func(ctx context.Context) error { return w.Store.FinishDelivery(ctx, d) },
			func() { w.Observer.Delivered(w.name, now.Sub(d.Event.At)) }
	case deploy.IsKind(failure, deploy.Invalid) || attempt >= leastAttempts && now.Sub(d.Event.At) >= w.GiveUpAfter:
		return func(ctx context.Context) error { return w.Store.GiveUpDelivery(ctx, d, failure.Error()) },
			func() {
				w.Observer.GaveUp(w.name)
				log.Error("a notification was given up", "error", failure)
			}
	}
	next := w.retryAt(failure, attempt, now)
	return func(ctx context.Context) error { return w.Store.RetryDelivery(ctx, d, next, failure.Error()) },
		func() {
			w.Observer.Failed(w.name)
			log.Warn("a notification was not delivered; trying again", "at", next, "error", failure)
		}
}

// How what fails is tried again.
const (
	firstRetry    = time.Second
	lastRetry     = 5 * time.Minute
	longestWait   = 2 * time.Hour // that an error can ask for: limits of hosts are of an hour
	leastAttempts = 5
)

// retryAt returns when to try again after an attempt failed: when the error says so, but
// not so late that what follows would wait for ever, else by back-off.
func (w *worker) retryAt(failure error, attempt int, now time.Time) time.Time {
	var told interface{ RetryAt() time.Time }
	if errors.As(failure, &told) {
		if at, latest := told.RetryAt(), now.Add(longestWait); at.After(latest) {
			return latest
		} else if at.After(now) {
			return at
		}
	}
	return now.Add(backoff(attempt, w.Random()))
}

// backoff returns how long to wait after the given attempt failed: from half of the
// full time on, by chance, so that what failed together does not come back together.
func backoff(attempt int, random float64) time.Duration {
	full := lastRetry
	if shift := attempt - 1; shift < 9 { // 2^9 s is more than the last one
		full = min(full, firstRetry<<shift)
	}
	return full/2 + time.Duration(random*float64(full/2))
}
