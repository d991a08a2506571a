package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

func wantDelivered(t *testing.T, f *fake, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.delivered()); diff != "" {
		t.Errorf("delivered to %s (-want +got):\n%s", f.name, diff)
	}
}

// failing returns an answer that fails the notices for which fails is true.
func failing(fails func(n Notice) bool) func(context.Context, Notice) error {
	return func(_ context.Context, n Notice) error {
		if fails(n) {
			return errors.New("no answer")
		}
		return nil
	}
}

// TestFailureHoldsItsOrderOnly: a failed delivery delays only later deliveries with the
// same order key.
func TestFailureHoldsItsOrderOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		hook := &fake{name: "hook", answer: failing(func(n Notice) bool { return n.Key == "a1" && n.Attempt < 3 })}
		l.run(hook)
		l.announce("a", "a1", "a2", "a3")
		l.announce("b", "b1", "b2")
		wantDelivered(t, hook, "b1", "b2")
		if s := l.state("hook"); s.Pending != 3 || s.Error != "no answer" || s.OldestPending.IsZero() {
			t.Errorf("state: %+v", s)
		}
		l.pass(3 * time.Second) // retries after 1 s and 2 s
		wantDelivered(t, hook, "b1", "b2", "a1", "a2", "a3")
		if s := l.state("hook"); s.Pending != 0 || s.Error != "" {
			t.Errorf("state at the end: %+v", s)
		}
		if o := &l.metrics; o.delivered != 5 || o.failed != 2 || o.gave != 0 {
			t.Errorf("counted %d delivered, %d failed, %d given up", o.delivered, o.failed, o.gave)
		}
	})
}

// TestDeadReceiverBlocksNoOther: a receiver that never answers delays no other one.
func TestDeadReceiverBlocksNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		dead := &fake{name: "dead", answer: func(ctx context.Context, _ Notice) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		well := &fake{name: "well"}
		l.run(dead, well)
		var want []string
		for i := range 300 {
			key := fmt.Sprintf("k%03d", i)
			want = append(want, key)
			l.announce(fmt.Sprintf("d%d", i%7), key)
		}
		if got := well.delivered(); len(got) != 300 {
			t.Errorf("the other receiver got %d of 300", len(got))
		}
		if dead.most != 4 || l.state("dead").Pending != 300 {
			t.Errorf("dead: %d concurrent, %d pending; want 4, 300", dead.most, l.state("dead").Pending)
		}
		got := well.delivered()
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// later is an error with a time of the next attempt.
type later struct{ at time.Time }

func (later) Error() string        { return "too many" }
func (e later) RetryAt() time.Time { return e.at }

func TestReceiverSetsRetryTime(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		until := time.Now().Add(17 * time.Minute)
		hook := &fake{name: "hook", answer: func(_ context.Context, n Notice) error {
			if n.Attempt == 1 {
				return fmt.Errorf("limited: %w", later{until})
			}
			return nil
		}}
		l.run(hook)
		l.announce("a", "a1")
		l.pass(time.Until(until) - time.Second)
		wantDelivered(t, hook)
		l.pass(time.Second)
		wantDelivered(t, hook, "a1")
	})
}

// TestRetryTimeIsLimited: a receiver that asks for a retry in a year is retried within
// longestWait, so that later deliveries are not blocked.
func TestRetryTimeIsLimited(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		hook := &fake{name: "hook", answer: func(_ context.Context, n Notice) error {
			if n.Key == "a1" {
				return later{time.Now().AddDate(1, 0, 0)}
			}
			return nil
		}}
		l.run(hook)
		l.announce("a", "a1", "a2")
		l.pass(25 * time.Hour)
		wantDelivered(t, hook, "a2")
		if s := l.state("hook"); s.Dead != 1 || s.Pending != 0 || s.DeadLetters[0].Attempts != 13 {
			t.Errorf("state: %+v", s)
		}
	})
}

// TestGivenUpAfterADay: a delivery that keeps failing is retried with backoff for a day,
// then the next one in its order is delivered.
func TestGivenUpAfterADay(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		hook := &fake{name: "hook", answer: failing(func(n Notice) bool { return n.Key == "a1" })}
		l.run(hook)
		l.announce("a", "a1", "a2")
		l.pass(23*time.Hour + 50*time.Minute)
		wantDelivered(t, hook)
		l.pass(20 * time.Minute)
		wantDelivered(t, hook, "a2")
		s := l.state("hook")
		if s.Dead != 1 || len(s.DeadLetters) != 1 || s.DeadLetters[0].Event.Key != "a1" || s.DeadLetters[0].Error != "no answer" || s.Pending != 0 {
			t.Errorf("state: %+v", s)
		}
		if n := s.DeadLetters[0].Attempts; n < 288 || n > 310 { // every 5 minutes, and a few before
			t.Errorf("%d attempts", n)
		}
		if gap := hook.at[1].Sub(hook.at[0]); gap < time.Second || gap > time.Second+10*time.Millisecond {
			t.Errorf("first tried again after %s", gap)
		}
	})
}

// TestAgentWasOff: an event that is a day old at its first attempt still gets all
// attempts.
func TestAgentWasOff(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		var works atomic.Bool
		hook := &fake{name: "hook", answer: failing(func(Notice) bool { return !works.Load() })}
		l.run(hook)
		l.announce("a", "a1")
		l.end()
		l.pass(48 * time.Hour)
		l.run(hook)
		if s := l.state("hook"); s.Dead != 0 || s.Pending != 1 {
			t.Fatalf("given up after %d attempts", len(hook.attempts))
		}
		works.Store(true)
		l.pass(10 * time.Second)
		wantDelivered(t, hook, "a1")
	})
}

// TestReplayOfAnOldEvent: a replayed delivery of an event older than the limit gets all attempts
// again, then it is a dead letter again.
func TestReplayOfAnOldEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		hook := &fake{name: "hook", answer: failing(func(Notice) bool { return true })}
		l.run(hook)
		l.announce("a", "a1")
		l.pass(25 * time.Hour)
		before := hook.tries()
		if s := l.state("hook"); s.Dead != 1 {
			t.Fatalf("state: %+v", s)
		}
		if n, err := l.store.ReplayDeadLetters(t.Context(), "hook"); err != nil || n != 1 {
			t.Fatalf("replayed %d, %v", n, err)
		}
		l.pass(batchWindow + time.Millisecond)
		if n := hook.tries() - before; n != 1 {
			t.Errorf("%d attempts at once, want 1", n)
		}
		l.pass(time.Hour)
		if s, n := l.state("hook"), hook.tries()-before; n != 5 || s.Dead != 1 || s.DeadLetters[0].Attempts != 5 {
			t.Errorf("%d new attempts, state %+v; want 5, and a dead letter", n, s)
		}
	})
}

func TestPermanentErrorIsGivenUpAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		hook := &fake{name: "hook", answer: func(_ context.Context, n Notice) error {
			if n.Key == "a1" {
				return deploy.Errorf(deploy.Invalid, "too large")
			}
			return nil
		}}
		l.run(hook)
		l.announce("a", "a1", "a2")
		wantDelivered(t, hook, "a2")
		if s := l.state("hook"); s.Dead != 1 || s.DeadLetters[0].Attempts != 1 || s.DeadLetters[0].Error != "too large" {
			t.Errorf("state: %+v", s)
		}
		if l.metrics.gave != 1 {
			t.Errorf("counted %d", l.metrics.gave)
		}
	})
}

// TestReceiversChange: a new receiver gets events from then on, pending deliveries of a
// removed one are dropped, and failed deliveries are retried at once.
func TestReceiversChange(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		down := true
		stays := &fake{name: "stays", answer: failing(func(Notice) bool { return down })}
		goes := &fake{name: "goes", answer: failing(func(Notice) bool { return down })}
		l.run(stays, goes)
		l.announce("a", "a1")
		l.pass(time.Hour)
		down = false
		fixed := &fake{name: "stays"}
		comes := &fake{name: "comes"}
		l.courier.SetReceivers(fixed, comes)
		l.pass(time.Millisecond)
		wantDelivered(t, fixed, "a1")
		l.announce("a", "a2")
		wantDelivered(t, fixed, "a1", "a2")
		wantDelivered(t, comes, "a2")
		l.courier.SetReceivers(fixed, comes, goes)
		l.pass(time.Hour)
		wantDelivered(t, goes)
		if s := l.state("goes"); s.Pending != 0 {
			t.Errorf("dropped deliveries are pending again: %+v", s)
		}
	})
}

// damaged is a store with one unreadable deployment.
type damaged struct{ *store.Store }

func (d damaged) Deployment(ctx context.Context, id string) (deploy.Deployment, error) {
	if id == "broken" {
		return deploy.Deployment{}, deploy.Errorf(deploy.Internal, "read deployment %s: unexpected end of JSON input", id)
	}
	return d.Store.Deployment(ctx, id)
}

// TestDamagedDeployment: events of an unreadable deployment are delivered without its
// details and block nothing; the log reports it once.
func TestDamagedDeployment(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		var logs strings.Builder
		hook := &fake{name: "hook"}
		l.run(hook)
		l.end()
		l.courier = New(Config{Store: damaged{l.store}, Logger: slog.New(slog.NewTextHandler(&logs, nil)), Now: time.Now})
		l.courier.SetReceivers(hook)
		ctx, stop := context.WithCancel(context.Background())
		l.stop, l.ends = stop, make(chan error, 1)
		go func() { l.ends <- l.courier.Run(ctx) }()
		l.announce("broken", "b1")
		l.announce("a", "a1")
		l.announce("broken", "b2")
		wantDelivered(t, hook, "b1", "a1", "b2")
		l.end()
		if got := strings.Count(logs.String(), "cannot be read"); got != 1 {
			t.Errorf("it was logged %d times: %s", got, logs.String())
		}
	})
}

// TestNoReceivers: without receivers no events pile up.
func TestNoReceivers(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		l.run()
		l.announce("a", "a1", "a2")
		if left, err := l.store.Events(t.Context(), 0, 0); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		hook := &fake{name: "hook"}
		l.courier.SetReceivers(hook)
		l.pass(time.Hour)
		wantDelivered(t, hook)
	})
}

// TestRestart: notices that were pending when the agent died are delivered once after
// its start.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		fails := true
		hook := &fake{name: "hook", answer: failing(func(n Notice) bool { return fails && n.Key != "b1" })}
		l.run(hook)
		l.announce("a", "a1", "a2")
		l.announce("b", "b1")
		l.end()
		for _, key := range []string{"a3", "c1"} { // written while no courier runs
			if err := l.store.Announce(t.Context(), deploy.Event{Key: key, Type: deploy.EventStageStarted, DeploymentID: key[:1], Payload: []byte("{}"), At: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.store.Close(); err != nil {
			t.Fatal(err)
		}
		l.open()
		fails = false
		l.run(hook)
		l.pass(2 * time.Second)
		got := hook.delivered()
		if diff := cmp.Diff([]string{"a1", "a2", "a3"}, slices.DeleteFunc(slices.Clone(got), func(k string) bool { return k[0] != 'a' })); diff != "" {
			t.Errorf("of a (-want +got):\n%s", diff)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a1", "a2", "a3", "b1", "c1"}, got); diff != "" {
			t.Errorf("all (-want +got):\n%s", diff)
		}
	})
}

// TestAWorkerKnowsItsReceiverBeforeItRuns: run may deliver at once.
func TestAWorkerKnowsItsReceiverBeforeItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		l.run()
		ws := newWorkers(t.Context(), l.courier)
		defer ws.end(0)
		if w := ws.start(&fake{name: "slack"}); w.receiver.Load() == nil {
			t.Error("a worker runs that does not know its receiver")
		}
	})
}

// TestFlushOnShutdown: events written before shutdown are delivered within the grace
// period, and not longer.
func TestFlushOnShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, l *env) {
		l.grace = time.Second
		quick := &fake{name: "quick"}
		hangs := &fake{name: "hangs", answer: func(ctx context.Context, _ Notice) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		l.run(quick, hangs)
		if err := l.store.Announce(t.Context(), deploy.Event{Key: "bye", Type: deploy.EventPipedStopped, Payload: []byte("{}"), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		l.end()
		wantDelivered(t, quick, "bye")
		if took := time.Since(begun); took > time.Second+10*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if states, err := l.store.ReceiverStates(t.Context()); err != nil || states["hangs"].Pending != 1 || states["hangs"].Error != "" {
			t.Errorf("the delivery should be pending without an error: %+v, %v", states["hangs"], err)
		}
	})
}

func TestBackoff(t *testing.T) {
	for attempt, full := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 11: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		if got := backoff(attempt, 0); got != full/2 {
			t.Errorf("after attempt %d at least %s, want %s", attempt, got, full/2)
		}
		if got := backoff(attempt, 0.999); got <= full/2 || got > full {
			t.Errorf("after attempt %d at most %s, want no more than %s", attempt, got, full)
		}
	}
}
