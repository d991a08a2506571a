// Package background runs jobs that may take long for callers that must not wait for them,
// and the loops of components that handle keys from a queue. A caller of a job waits
// briefly for its result, and asks again when the job has ended.
//
// The package does not know what the jobs do.
package background

import (
	"context"
	"maps"
	"sync"
	"time"
)

// DefaultPatience is how long callers mostly wait for a job.
const DefaultPatience = 2 * time.Second

const (
	// defaultAtOnce is how many jobs work at once, and how many more may wait for
	// something outside of the agent.
	defaultAtOnce = 16
	// keepFor is how long a result that no caller has asked for is taken to be true.
	keepFor = time.Minute
)

// Config is what Jobs need; its zero value is usable.
type Config struct {
	// Patience is how long after its start callers wait for a job; default
	// DefaultPatience.
	Patience time.Duration
	// AtOnce is how many jobs work at once, others wait for their turn, and how many may
	// wait for something outside of the agent; default 16.
	AtOnce int
}

// Jobs are jobs of one kind: at most one for each key. Close ends them. They are safe
// for concurrent use, but for calls of the same key, of which there is one at a time.
type Jobs[K comparable, V any] struct {
	Config
	turns   chan struct{} // holds a token for each job that works
	running sync.WaitGroup

	mu      sync.Mutex
	jobs    map[K]*job[V]
	closed  bool
	outside int       // jobs that wait for something outside
	swept   time.Time // when results were dropped last that no caller has asked for
}

type job[V any] struct {
	subject string
	started time.Time
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the result is there

	// Jobs.mu guards these.
	on    string // what it waits for outside, "" for nothing
	wake  func() // nil until a caller has gone
	ended time.Time

	value V
	err   error
}

// New returns Jobs that have none.
func New[K comparable, V any](c Config) *Jobs[K, V] {
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.AtOnce == 0 {
		c.AtOnce = defaultAtOnce
	}
	return &Jobs[K, V]{Config: c, turns: make(chan struct{}, c.AtOnce), jobs: map[K]*job[V]{}}
}

// Running is the error of a job that has not ended yet.
type Running struct {
	On string // what it waits for outside of the agent, "" for nothing
}

// Error says so.
func (r *Running) Error() string {
	if r.On == "" {
		return "it is not finished yet"
	}
	return "it waits for " + r.On
}

// Do returns the result of the job that does work on a subject, which it starts unless
// it was started before. Each result is returned once. While there is none when the
// patience is over, the error is a *Running, and wake, unless nil, is called when the
// job has ended. Another subject of the key cancels the job and starts a new one.
//
// The job has the values of ctx. It goes on when ctx ends, and ends with Close.
func (j *Jobs[K, V]) Do(ctx context.Context, key K, subject string, wake func(), work func(context.Context) (V, error)) (value V, err error) {
	own := j.join(ctx, key, subject, work)
	if own == nil {
		return value, context.Canceled
	}
	patience := time.NewTimer(time.Until(own.started.Add(j.Patience)))
	defer patience.Stop()
	select {
	case <-own.done:
	case <-patience.C:
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if own.ended.IsZero() {
		own.wake = wake
		return value, &Running{On: own.on}
	}
	if j.jobs[key] == own {
		delete(j.jobs, key)
	}
	return own.value, own.err
}

// Forget cancels the job of a key, and drops its result.
func (j *Jobs[K, V]) Forget(key K) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own := j.jobs[key]; own != nil {
		own.cancel(context.Canceled)
		delete(j.jobs, key)
	}
}

// Close cancels all jobs and returns when they have ended. There are none after it.
func (j *Jobs[K, V]) Close() {
	j.mu.Lock()
	j.closed = true
	for key, own := range j.jobs {
		own.cancel(context.Canceled)
		delete(j.jobs, key)
	}
	j.mu.Unlock()
	j.running.Wait()
}

// join returns the job of a key and subject, which it starts unless there is one; nil
// after Close.
func (j *Jobs[K, V]) join(ctx context.Context, key K, subject string, work func(context.Context) (V, error)) *job[V] {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	j.sweep(now)
	own := j.jobs[key]
	switch {
	case j.closed:
		return nil
	case own != nil && own.subject == subject && !own.old(now):
		return own
	case own != nil:
		own.cancel(context.Canceled)
	}
	own = &job[V]{subject: subject, started: now, done: make(chan struct{})}
	ctx, own.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	j.jobs[key] = own
	j.running.Go(func() { j.run(ctx, own, work) })
	return own
}

// sweep drops results that no caller has asked for. J is locked.
func (j *Jobs[K, V]) sweep(now time.Time) {
	if now.Sub(j.swept) < keepFor {
		return
	}
	j.swept = now
	maps.DeleteFunc(j.jobs, func(_ K, own *job[V]) bool { return own.old(now) })
}

// old reports whether a result may not be true any more. Jobs are locked.
func (own *job[V]) old(now time.Time) bool {
	return !own.ended.IsZero() && now.Sub(own.ended) > keepFor
}

// run does the work in its turn.
func (j *Jobs[K, V]) run(ctx context.Context, own *job[V], work func(context.Context) (V, error)) {
	t := &turn{ctx: ctx, turns: j.turns, cancel: own.cancel, patience: j.Patience, note: func(on string) (tooMany bool) { return j.note(own, on) }}
	var value V
	err := t.take()
	if err == nil {
		value, err = work(context.WithValue(ctx, turnKey{}, t))
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	t.leave()
	own.cancel(nil)
	j.mu.Lock()
	own.value, own.err, own.ended = value, err, time.Now()
	wake := own.wake
	close(own.done)
	j.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// note records the server or file outside of the agent that a job waits for from now on, ""
// for none. It reports whether more than AtOnce jobs wait for something outside.
func (j *Jobs[K, V]) note(own *job[V], on string) (tooMany bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own.on = on; on == "" {
		j.outside--
	} else {
		j.outside++
	}
	return j.outside > j.AtOnce
}
