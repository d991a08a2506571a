package trigger

import (
	"testing"
	"time"
)

const second = time.Second

// TestPaceNeverExceedsTheInterval: from the beginning of one poll to that of the next.
func TestPaceNeverExceedsTheInterval(t *testing.T) {
	p := pace{interval: 15 * second}
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		took := second
		between := took + p.next(time.Now(), took, 0)
		least, most = min(least, between), max(most, between)
	}
	if most > 15*second || least < 13500*time.Millisecond || most-least < second {
		t.Errorf("polls begin every %s to %s, want 13.5 to 15 s, at random", least, most)
	}
}

// TestPaceOfASlowRepository: its polls do not follow each other without a pause.
func TestPaceOfASlowRepository(t *testing.T) {
	p := pace{interval: 10 * second}
	for took, want := range map[time.Duration]time.Duration{8 * second: 7 * second, time.Minute: 9 * second} {
		if got := p.next(time.Now(), took, 0); got < want {
			t.Errorf("after a poll of %s comes a pause of %s, want at least %s", took, got, want)
		}
	}
}

// TestPaceAfterAMove: a repository that moves is polled every two seconds for half a minute, and
// then as before.
func TestPaceAfterAMove(t *testing.T) {
	p := pace{interval: 15 * second}
	now := time.Now()
	p.moved = now
	polls := 0
	for at := now; at.Sub(now) < time.Minute; polls++ {
		pause := p.next(at, 0, 0)
		if quick := pause <= 2*second; quick != (at.Sub(now) < 28*second) && at.Sub(now) < 26*second {
			t.Errorf("%s after the move, the pause is %s", at.Sub(now), pause)
		}
		at = at.Add(pause)
	}
	if polls < 16 || polls > 19 {
		t.Errorf("%d polls in the minute after a move, want about 15 in its first half and 2 in the other", polls)
	}
}

// TestPaceOfARepositoryThatAlwaysMoves: in an hour it is polled at most twice as often as an idle
// one, and the first burst.
func TestPaceOfARepositoryThatAlwaysMoves(t *testing.T) {
	for _, interval := range []time.Duration{5 * second, 15 * second, time.Minute} {
		p := pace{interval: interval}
		polls, began := 0, time.Now()
		for at := began; at.Sub(began) < time.Hour; polls++ {
			p.moved = at
			at = at.Add(p.next(at, 0, 0))
		}
		// A quick poll takes some of the time in which polls at the interval would earn others.
		most := int(2*time.Hour/(interval*9/10)) + maxCredits
		if polls > most || polls < int(time.Hour/interval) {
			t.Errorf("%d polls an hour at %s, want at most %d", polls, interval, most)
		}
	}
}

// TestPaceWithoutQuickPolls: a long interval is meant for webhooks, a short one is quick enough, and
// a repository that fails is left alone.
func TestPaceWithoutQuickPolls(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		interval time.Duration
		failures int
		least    time.Duration
	}{{time.Hour, 0, 54 * time.Minute}, {second, 0, 900 * time.Millisecond}, {15 * second, 1, 27 * second}, {15 * second, 20, 108 * second}} {
		p := pace{interval: c.interval, moved: now}
		if got := p.next(now, 0, c.failures); got < c.least {
			t.Errorf("interval %s after %d failures: a pause of %s, want at least %s", c.interval, c.failures, got, c.least)
		}
	}
}
