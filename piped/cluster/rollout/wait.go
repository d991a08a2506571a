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

// Observer reads one cluster. Its errors carry a deploy kind: Invalid ends the
// wait, any other means that the cluster cannot be asked now.
type Observer interface {
	// Cached returns what the caches show. It may block until they are filled.
	Cached(ctx context.Context, rec deploy.Rollout) (Snapshot, error)
	// Confirm reads from the API server: first the workload, then its ReplicaSets.
	Confirm(ctx context.Context, rec deploy.Rollout) (Snapshot, error)
	// Pods reads the pods that s is about, and their events.
	Pods(ctx context.Context, rec deploy.Rollout, s Snapshot) ([]corev1.Pod, []corev1.Event, error)
	// NewPods reads the pods of the workload that the template of s has made, without
	// those that are stopping. It fails when there are too many to read at once.
	NewPods(ctx context.Context, rec deploy.Rollout, s Snapshot) ([]corev1.Pod, error)
	// Controllers reads the Lease of the cluster's controllers; its Renewal is "" where
	// there is none or the agent may not read it.
	Controllers(ctx context.Context) (Lease, error)
	// Subscribe has wake called after each change of the workload or one of its
	// ReplicaSets, until cancel is called. wake never blocks and may be called
	// too often and from any goroutine.
	Subscribe(ref deploy.ObjectRef, wake func()) (cancel func(), err error)
}

// Request says what to wait for.
type Request struct {
	// Records of workloads that were applied, as stored.
	Records  []deploy.Rollout
	Observer Observer
	Policy   Policy

	// Save stores a record if its Version is the stored one's, and returns it
	// with its new Version. If it is not, Save returns the stored record with an
	// error of kind Conflict. An error of kind Unavailable is retried.
	Save func(ctx context.Context, rec deploy.Rollout) (deploy.Rollout, error)

	// Progress is given a line whenever what there is to say of a rollout changed.
	Progress func(line string)

	// Abandon, when set, ends the wait with what is received from it, the name of
	// what failed: the records still going are given up as if one of them had failed.
	Abandon <-chan string

	// Marked, when set, is told of each rollout whose completion was stored how long that
	// took, from when the first change was heard of that had not been looked at before.
	Marked func(after time.Duration)

	// Now defaults to time.Now. A wall clock that is set does not disturb a wait.
	Now func() time.Time
}

// Times of the wait itself.
const (
	pollInterval  = 30 * time.Second // without an event, the API server is asked this often
	saveInterval  = 5 * time.Second  // counts of progress are stored at most this often
	firstRetry    = 250 * time.Millisecond
	longestRetry  = 5 * time.Second
	lastSaveLimit = 5 * time.Second // for the marks when the context has ended
)

// Wait blocks until every record is terminal, and returns them as stored. One
// that ends Failed or TimedOut ends the wait: the others are looked at once
// more, and those still going are given up (Superseded), so that a rollback
// need not wait for them.
//
// While the cluster cannot be asked nothing is decided and no clock runs. When
// ctx ends, Wait returns its cause and where the rollouts stood; records still going then become TimedOut if
// it is StopTimedOut, Superseded if it is StopCancelled, and otherwise stay as
// they are, to be waited for again after the next start. Any other error means
// that a record could not be stored or that the cluster refuses to be asked.
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

// waiter is one call of Wait.
type waiter struct {
	req     Request
	started time.Time
	wake    chan struct{}
	tracks  []*track
	because string // what failed beside the records

	presence Presence // of the cluster
}

// track is one record while it is waited for.
type track struct {
	rec    deploy.Rollout
	heard  atomic.Int64  // when a change was heard of first that was not looked at, in nanoseconds of the wait; 0 if there is none
	woken  time.Duration // what heard was at the last look
	cancel func()
	line   string // said last

	next      time.Time // when to look even without an event
	confirmBy time.Time // when to ask the API server even if the cache is content
	savedAt   time.Time

	podsAt   time.Time // when pods were read
	troubles []Trouble
	stopping int32     // as Snapshot.Stopping
	stopped  time.Time // and StoppingUntil

	blind bool // the cluster could not be asked
	retry time.Duration
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

// now advances with the monotonic clock from the moment the wait began.
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

// decided reports whether the wait is over: all ended, one failed, or something
// else that counts as much.
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

func failed(p deploy.RolloutPhase) bool {
	return p == deploy.RolloutFailed || p == deploy.RolloutTimedOut
}

// round looks at every record for which there is a reason to.
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

// sleep waits for an event, the next time to look, or the end of ctx.
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

// giveUpRest ends the records that are still going when one has failed.
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

// stopped is the cause of ctx's end, with where the rollouts stood.
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

// markStopped ends the records of a stage that was stopped for good.
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
			// A record that cannot be stored now is ended by whoever resumes it.
			_ = w.store(ctx, t, GivenUp(t.rec, phase, w.now(), "%s; it stood at: %s", why, t.line))
		}
	}
}
