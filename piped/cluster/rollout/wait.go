package rollout

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// Observer reads one cluster. Its errors have a kind of package deploy: Invalid ends the
// wait, any other kind means that the cluster does not answer at present.
type Observer interface {
	// Cached returns a snapshot from the caches. It may block until they are filled.
	Cached(ctx context.Context, rec deploy.Rollout) (Snapshot, error)
	// Confirm reads a snapshot from the API server: first the workload, then its
	// ReplicaSets.
	Confirm(ctx context.Context, rec deploy.Rollout) (Snapshot, error)
	// Pods reads the pods that roll out in s and the terminating pods of the workload, and
	// the events that explain them.
	Pods(ctx context.Context, rec deploy.Rollout, s Snapshot) ([]corev1.Pod, []corev1.Event, error)
	// NewPods reads the pods of the workload that have the template of s and are not being
	// deleted. It returns an error if there are too many to read at once.
	NewPods(ctx context.Context, rec deploy.Rollout, s Snapshot) ([]corev1.Pod, error)
	// Controllers reads the Lease of the cluster's controllers. Its Renewal is "" if there
	// is no Lease or the agent may not read it.
	Controllers(ctx context.Context) (Lease, error)
	// Subscribe calls wake after each change of the workload or one of its ReplicaSets,
	// until cancel is called. wake never blocks. It may be called without a change and from
	// any goroutine.
	Subscribe(ref deploy.ObjectRef, wake func()) (cancel func(), err error)
}

// Request contains the records that Wait waits for, and how to read and store them.
type Request struct {
	// Records are the stored records of the workloads. Wait requires that they were applied,
	// Conclude does not.
	Records  []deploy.Rollout
	Observer Observer
	Policy   Policy

	// Save stores a record if its Version equals the stored one (compare-and-swap), and
	// returns it with its new Version. Otherwise it returns the stored record and an error
	// of kind Conflict. An error of kind Unavailable is retried.
	Save func(ctx context.Context, rec deploy.Rollout) (deploy.Rollout, error)

	// Progress, when set, receives a line whenever the progress of a rollout has changed.
	Progress func(line string)

	// Abandon, when set, ends the wait when it receives the name of a component that has
	// failed. Open records are then given up as if one of them had failed.
	Abandon <-chan string

	// Marked, when set, receives the latency of each completion that followed a change
	// event: the time from the first event not evaluated before until the completion was
	// stored.
	Marked func(after time.Duration)

	// Now defaults to time.Now. A change of the wall clock does not affect a wait.
	Now func() time.Time
}

// Intervals and time limits of a wait.
const (
	pollInterval  = 30 * time.Second // between confirmed snapshots without an event
	saveInterval  = 5 * time.Second  // minimum between stores of progress counts
	firstRetry    = 250 * time.Millisecond
	longestRetry  = 5 * time.Second
	lastSaveLimit = 5 * time.Second // for storing records after the context has ended
)

// Wait blocks until every record is terminal, and returns the records as stored. A record
// that ends as Failed or TimedOut ends the wait: the others are evaluated once more, and
// those still open are given up (Superseded), so that a rollback need not wait for them.
//
// While the cluster does not answer, no record changes and no deadline runs. When ctx ends,
// Wait returns its cause with the progress of the open rollouts. Open records become
// TimedOut if the cause is StopTimedOut, and Superseded if it is StopCancelled. Otherwise
// they stay open, and the next start of the agent resumes them. Any other error means that a
// record could not be stored or was not applied, or that the cluster rejects a request
// permanently.
//
// Wait starts no goroutine.
func Wait(ctx context.Context, req Request) ([]deploy.Rollout, error) {
	w := newWaiter(req)
	defer w.unsubscribe()
	err := w.subscribe()
	for err == nil {
		if err = w.round(ctx); err == nil && w.decided() {
			err = w.giveUpRest(ctx)
			return w.records(), err
		}
		if err == nil {
			err = w.sleep(ctx)
		}
	}
	if ctx.Err() != nil {
		err = w.stopped(ctx)
		w.markStopped(ctx)
	}
	return w.records(), err
}

// waiter is the state of one call of Wait or Conclude.
type waiter struct {
	req     Request
	started time.Time
	wake    chan struct{}
	tracks  []*track
	because string // the failed component, from Abandon

	presence Presence // of the cluster
}

// track is the state of one record during a wait.
type track struct {
	rec    deploy.Rollout
	heard  atomic.Int64  // the first event not evaluated yet, in nanoseconds since the wait began; 0: none
	woken  time.Duration // the value of heard at the last round
	cancel func()
	line   string // the last progress line

	next      time.Time // the next evaluation without an event
	confirmBy time.Time // the next confirmed snapshot
	savedAt   time.Time // the last store

	podsAt   time.Time // the last read of the pods
	troubles []Trouble // of that read
	stopping int32     // as Snapshot.Stopping
	stopped  time.Time // as Snapshot.StoppingUntil

	blind bool          // the cluster did not answer the last request
	retry time.Duration // the current backoff delay
}

func newWaiter(req Request) *waiter {
	if req.Now == nil {
		req.Now = time.Now
	}
	w := &waiter{req: req, started: req.Now(), wake: make(chan struct{}, 1)}
	w.req.Policy = req.Policy.withDefaults()
	for _, rec := range req.Records {
		t := &track{rec: rec, next: w.now(), confirmBy: w.now().Add(pollInterval)}
		w.tracks = append(w.tracks, t)
	}
	return w
}

// now returns the time at which the wait began plus the time elapsed since by the monotonic
// clock.
func (w *waiter) now() time.Time {
	return w.started.Round(0).Add(w.req.Now().Sub(w.started))
}

func (w *waiter) subscribe() error {
	for _, t := range w.tracks {
		if t.rec.Phase.Terminal() {
			continue
		}
		cancel, err := w.req.Observer.Subscribe(t.rec.Workload, func() {
			t.heard.CompareAndSwap(0, max(1, int64(w.now().Sub(w.started))))
			select {
			case w.wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return err
		}
		t.cancel = cancel
	}
	return nil
}

func (w *waiter) unsubscribe() {
	for _, t := range w.tracks {
		if t.cancel != nil {
			t.cancel()
		}
	}
}

func (w *waiter) records() []deploy.Rollout {
	records := make([]deploy.Rollout, len(w.tracks))
	for i, t := range w.tracks {
		records[i] = t.rec
	}
	return records
}

// decided reports whether the wait is over: all records are terminal, one has failed, or
// Abandon has received a component.
func (w *waiter) decided() bool {
	all := true
	if w.because != "" {
		return true
	}
	for _, t := range w.tracks {
		if failed(t.rec.Phase) {
			return true
		}
		all = all && t.rec.Phase.Terminal()
	}
	return all
}

// failed reports whether a record in phase p ends the wait for all records.
func failed(p deploy.RolloutPhase) bool {
	return p == deploy.RolloutFailed || p == deploy.RolloutTimedOut
}

// round evaluates each open record that has an event or is due.
func (w *waiter) round(ctx context.Context) error {
	if err := w.checkPresence(ctx); err != nil {
		return err
	}
	for _, t := range w.tracks {
		t.woken = time.Duration(t.heard.Swap(0))
		if t.rec.Phase.Terminal() || t.woken == 0 && w.now().Before(t.next) {
			continue
		}
		if err := w.step(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// sleep blocks until an event, the next due evaluation or Lease read, or the failure of
// another component. It returns an error when ctx ends.
func (w *waiter) sleep(ctx context.Context) error {
	next := w.presence.Next()
	for _, t := range w.tracks {
		if !t.rec.Phase.Terminal() && t.next.Before(next) {
			next = t.next
		}
	}
	timer := time.NewTimer(next.Sub(w.now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.wake:
	case w.because = <-w.req.Abandon:
	case <-timer.C:
	}
	return ctx.Err()
}

// giveUpRest evaluates the open records once more on confirmed snapshots, and gives up those
// that stay open.
func (w *waiter) giveUpRest(ctx context.Context) error {
	because := w.because
	for _, t := range w.tracks {
		if failed(t.rec.Phase) {
			because = t.rec.Workload.String()
			break
		}
	}
	for _, t := range w.tracks {
		if t.rec.Phase.Terminal() {
			continue
		}
		t.confirmBy = w.now()
		if err := w.step(ctx, t); err != nil {
			return err
		}
		if t.rec.Phase.Terminal() {
			continue
		}
		if err := w.store(ctx, t, GivenUp(t.rec, deploy.RolloutSuperseded, w.now(),
			"given up because %s failed; it stood at: %s", because, t.line)); err != nil {
			return err
		}
	}
	return nil
}

// stopped returns the cause of ctx's end with the progress of the open rollouts.
func (w *waiter) stopped(ctx context.Context) error {
	var lines []string
	for _, t := range w.tracks {
		if !t.rec.Phase.Terminal() && t.line != "" {
			lines = append(lines, t.rec.Workload.String()+": "+strings.TrimPrefix(t.line, t.rec.Workload.Name+": "))
		}
	}
	if len(lines) == 0 {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w while waiting for %s", context.Cause(ctx), strings.Join(lines, "; "))
}

// markStopped ends the open records of a stage that timed out or was cancelled. If the agent
// stops for another reason, they stay open.
func (w *waiter) markStopped(ctx context.Context) {
	var phase deploy.RolloutPhase
	var why string
	switch deploy.Stopped(ctx) {
	case deploy.StopTimedOut:
		phase, why = deploy.RolloutTimedOut, "the stage's time ran out"
	case deploy.StopCancelled:
		phase, why = deploy.RolloutSuperseded, "the stage was cancelled"
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveLimit)
	defer cancel()
	for _, t := range w.tracks {
		if !t.rec.Phase.Terminal() {
			// A record that cannot be stored now stays open until the stage is resumed.
			_ = w.store(ctx, t, GivenUp(t.rec, phase, w.now(), "%s; it stood at: %s", why, t.line))
		}
	}
}
