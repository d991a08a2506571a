package control

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecents: a call gets a result that is as old as it accepts, but never an older one than
// another call has got before, and nothing is retained for longer than a call may accept it.
func TestRecents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recents[int]
		reads, failure := 0, error(nil)
		get := func(context.Context) (int, error) {
			reads++
			return reads, failure
		}
		for i, c := range []struct {
			after, age time.Duration
			want       int
		}{
			{0, 0, 1},
			{0, time.Second, 2}, // nothing was retained for the first
			{time.Second, time.Second, 2},
			{time.Millisecond, time.Second, 3},
			{time.Millisecond, 0, 4},
			{time.Millisecond, time.Second, 4},
			{maxAge - 2*time.Millisecond, maxAge, 4},
		} {
			time.Sleep(c.after)
			if got, err := r.do(t.Context(), "a", c.age, get); got != c.want || err != nil {
				t.Errorf("call %d got %d, %v, want %d", i, got, err, c.want)
			}
		}
		if got, err := r.do(t.Context(), "b", maxAge, get); got != 5 || err != nil {
			t.Errorf("another key got %d, %v", got, err)
		}
		failure = errors.New("refused")
		if _, err := r.do(t.Context(), "c", maxAge, get); !errors.Is(err, failure) {
			t.Errorf("the error is %v", err)
		}
		if _, retained := r.known("c"); retained {
			t.Error("an error is retained")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cutShort := func(context.Context) (int, error) { cancel(); return 0, nil }
		if _, err := r.do(ctx, "d", maxAge, cutShort); err != nil {
			t.Errorf("the error is %v", err)
		}
		if _, retained := r.known("d"); retained {
			t.Error("what a caller that went away has read is retained")
		}
		time.Sleep(maxAge)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.byKey) != 0 {
			t.Errorf("%d results are retained for too long", len(r.byKey))
		}
	})
}
