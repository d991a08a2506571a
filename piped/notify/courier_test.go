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

func wantTold(t *testing.T, f *fake, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.told()); diff != "" {
		t.Errorf("%s was told (-want +got):\n%s", f.name, diff)
	}
}

// failing returns an answer that fails what fails says until its time has come.
func failing(fails func(n Notice) bool) func(context.Context, Notice) error {
	return func(_ context.Context, n Notice) error {
		if fails(n) {
			return errors.New("no answer")
		}
		return nil
	}
}

// TestFailureHoldsItsOrderOnly: what fails holds back what follows it in its order,
// and nothing else.
func TestFailureHoldsItsOrderOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		hook := &fake{name: "hook", answer: failing(func(n Notice) bool { return n.Key == "a1" && n.Attempt < 3 })}
		l.run(hook)
		l.tell("a", "a1", "a2", "a3")
		l.tell("b", "b1", "b2")
		wantTold(t, hook, "b1", "b2")
		if s := l.state("hook"); s.Pending != 3 || s.Error != "no answer" || s.OldestPending.IsZero() {
			t.Errorf("state: %+v", s)
		}
		l.pass(3 * time.Second) // 1 s and 2 s after the attempts before
		wantTold(t, hook, "b1", "b2", "a1", "a2", "a3")
		if s := l.state("hook"); s.Pending != 0 || s.Error != "" {
			t.Errorf("state at the end: %+v", s)
		}
		if o := &l.seen; o.delivered != 5 || o.failed != 2 || o.gave != 0 {
			t.Errorf("observed %d delivered, %d failed, %d given up", o.delivered, o.failed, o.gave)
		}
	})
}

// TestDeadReceiverSlowsNobody: a receiver that never answers holds back no other.
func TestDeadReceiverSlowsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
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
			l.tell(fmt.Sprintf("d%d", i%7), key)
		}
		if got := well.told(); len(got) != 300 {
			t.Errorf("the other one was told %d of 300", len(got))
		}
		if dead.most != 4 || l.state("dead").Pending != 300 {
			t.Errorf("dead: %d at once, %d wait; want 4, 300", dead.most, l.state("dead").Pending)
		}
		got := well.told()
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// later is an error that says when to try again.
type later struct{ at time.Time }

func (later) Error() string        { return "too many" }
func (e later) RetryAt() time.Time { return e.at }

func TestReceiverSaysWhenToTryAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		until := time.Now().Add(17 * time.Minute)
		hook := &fake{name: "hook", answer: func(_ context.Context, n Notice) error {
			if n.Attempt == 1 {
				return fmt.Errorf("limited: %w", later{until})
			}
			return nil
		}}
		l.run(hook)
		l.tell("a", "a1")
		l.pass(time.Until(until) - time.Second)
		wantTold(t, hook)
		l.pass(time.Second)
		wantTold(t, hook, "a1")
	})
}

// TestReceiverAsksForTooMuch: one that wants to be left alone for a year is tried all the
// same, so that what follows is told or given up in time.
func TestReceiverAsksForTooMuch(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		hook := &fake{name: "hook", answer: func(_ context.Context, n Notice) error {
			if n.Key == "a1" {
				return later{time.Now().AddDate(1, 0, 0)}
			}
			return nil
		}}
		l.run(hook)
		l.tell("a", "a1", "a2")
		l.pass(25 * time.Hour)
		wantTold(t, hook, "a2")
		if s := l.state("hook"); s.Dead != 1 || s.Pending != 0 || s.DeadLetters[0].Attempts != 13 {
			t.Errorf("state: %+v", s)
		}
	})
}

// TestGivenUpAfterADay: what keeps failing is tried at growing intervals for a day, and
// then what follows it has its turn.
func TestGivenUpAfterADay(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		hook := &fake{name: "hook", answer: failing(func(n Notice) bool { return n.Key == "a1" })}
		l.run(hook)
		l.tell("a", "a1", "a2")
		l.pass(23*time.Hour + 50*time.Minute)
		wantTold(t, hook)
		l.pass(20 * time.Minute)
		wantTold(t, hook, "a2")
		s := l.state("hook")
		if s.Dead != 1 || len(s.DeadLetters) != 1 || s.DeadLetters[0].Event.Key != "a1" || s.DeadLetters[0].Error != "no answer" || s.Pending != 0 {
			t.Errorf("state: %+v", s)
		}
		if n := s.DeadLetters[0].Attempts; n < 288 || n > 310 { // every 5 minutes, and some before
			t.Errorf("%d attempts", n)
		}
		if gap := hook.at[1].Sub(hook.at[0]); gap < time.Second || gap > time.Second+10*time.Millisecond {
			t.Errorf("first tried again after %s", gap)
		}
	})
}

// TestAgentWasOff: what is a day old when it is tried for the first time gets its
// attempts all the same.
func TestAgentWasOff(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		var works atomic.Bool
		hook := &fake{name: "hook", answer: failing(func(Notice) bool { return !works.Load() })}
		l.run(hook)
		l.tell("a", "a1")
		l.end()
		l.pass(48 * time.Hour)
		l.run(hook)
		if s := l.state("hook"); s.Dead != 0 || s.Pending != 1 {
			t.Fatalf("given up after %d attempts", len(hook.attempts))
		}
		works.Store(true)
		l.pass(10 * time.Second)
		wantTold(t, hook, "a1")
	})
}

func TestNeverTakenIsGivenUpAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		hook := &fake{name: "hook", answer: func(_ context.Context, n Notice) error {
			if n.Key == "a1" {
				return deploy.Errorf(deploy.Invalid, "too large")
			}
			return nil
		}}
		l.run(hook)
		l.tell("a", "a1", "a2")
		wantTold(t, hook, "a2")
		if s := l.state("hook"); s.Dead != 1 || s.DeadLetters[0].Attempts != 1 || s.DeadLetters[0].Error != "too large" {
			t.Errorf("state: %+v", s)
		}
		if l.seen.gave != 1 {
			t.Errorf("observed %d", l.seen.gave)
		}
	})
}

// TestReceiversChange: a new one is told what happens from then on, what a removed one
// was to be told is dropped, and what failed is tried again at once.
func TestReceiversChange(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		down := true
		stays := &fake{name: "stays", answer: failing(func(Notice) bool { return down })}
		goes := &fake{name: "goes", answer: failing(func(Notice) bool { return down })}
		l.run(stays, goes)
		l.tell("a", "a1")
		l.pass(time.Hour)
		down = false
		mended := &fake{name: "stays"}
		comes := &fake{name: "comes"}
		l.courier.SetReceivers(mended, comes)
		l.pass(time.Millisecond)
		wantTold(t, mended, "a1")
		l.tell("a", "a2")
		wantTold(t, mended, "a1", "a2")
		wantTold(t, comes, "a2")
		l.courier.SetReceivers(mended, comes, goes)
		l.pass(time.Hour)
		wantTold(t, goes)
		if s := l.state("goes"); s.Pending != 0 {
			t.Errorf("what was dropped is back: %+v", s)
		}
	})
}

// damaged is a store in which one deployment cannot be read.
type damaged struct{ *store.Store }

func (d damaged) Deployment(ctx context.Context, id string) (deploy.Deployment, error) {
	if id == "broken" {
		return deploy.Deployment{}, deploy.Errorf(deploy.Internal, "read deployment %s: unexpected end of JSON input", id)
	}
	return d.Store.Deployment(ctx, id)
}

// TestDamagedDeployment: what is about a deployment that cannot be read is told with what
// the event knows, and holds up nothing else; the log says it once.
func TestDamagedDeployment(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		var said strings.Builder
		hook := &fake{name: "hook"}
		l.run(hook)
		l.end()
		l.courier = New(Config{Store: damaged{l.store}, Logger: slog.New(slog.NewTextHandler(&said, nil)), Now: time.Now})
		l.courier.SetReceivers(hook)
		ctx, stop := context.WithCancel(context.Background())
		l.stop, l.ends = stop, make(chan error, 1)
		go func() { l.ends <- l.courier.Run(ctx) }()
		l.tell("broken", "b1")
		l.tell("a", "a1")
		l.tell("broken", "b2")
		wantTold(t, hook, "b1", "a1", "b2")
		l.end()
		if got := strings.Count(said.String(), "cannot be read"); got != 1 {
			t.Errorf("it was logged %d times: %s", got, said.String())
		}
	})
}

// TestNobodyToTell: without receivers nothing piles up.
func TestNobodyToTell(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.run()
		l.tell("a", "a1", "a2")
		if left, err := l.store.Events(t.Context(), 0, 0); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		hook := &fake{name: "hook"}
		l.courier.SetReceivers(hook)
		l.pass(time.Hour)
		wantTold(t, hook)
	})
}

// TestRestart: what was not told when the agent died is told once after its start, and
// what was told when it could not be noted is told again with its key.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		fails := true
		hook := &fake{name: "hook", answer: failing(func(n Notice) bool { return fails && n.Key != "b1" })}
		l.run(hook)
		l.tell("a", "a1", "a2")
		l.tell("b", "b1")
		l.end()
		for _, key := range []string{"a3", "c1"} { // written while nobody delivers
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
		got := hook.told()
		if diff := cmp.Diff([]string{"a1", "a2", "a3"}, slices.DeleteFunc(slices.Clone(got), func(k string) bool { return k[0] != 'a' })); diff != "" {
			t.Errorf("of a (-want +got):\n%s", diff)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a1", "a2", "a3", "b1", "c1"}, got); diff != "" {
			t.Errorf("all (-want +got):\n%s", diff)
		}
	})
}

// TestAWorkerKnowsItsReceiverBeforeItRuns: what waits since the last start is delivered
// at once.
func TestAWorkerKnowsItsReceiverBeforeItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.run()
		ws := newWorkers(t.Context(), l.courier)
		defer ws.end(0)
		if w := ws.start(&fake{name: "slack"}); w.receiver.Load() == nil {
			t.Error("a worker runs that does not know its receiver")
		}
	})
}

// TestLastWords: what is written before the courier is to end is told within its grace,
// and no longer.
func TestLastWords(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
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
		wantTold(t, quick, "bye")
		if took := time.Since(begun); took > time.Second+10*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if states, err := l.store.ReceiverStates(t.Context()); err != nil || states["hangs"].Pending != 1 || states["hangs"].Error != "" {
			t.Errorf("what was not taken waits without a failure: %+v, %v", states["hangs"], err)
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
