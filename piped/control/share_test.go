package control

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadsAreSharedByConcurrentCallers: callers that arrive during a read share the next one,
// so that the result was read after they called.
func TestReadsAreSharedByConcurrentCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reads[int]
		count := 0
		get := func(context.Context) (int, error) {
			count++
			n := count
			time.Sleep(time.Second)
			return n, nil
		}
		got := make([]int, 100)
		var calls sync.WaitGroup
		call := func(i int) {
			calls.Go(func() { got[i], _ = r.do(t.Context(), "log", get) })
			synctest.Wait()
		}
		call(0)
		for i := 1; i < len(got); i++ {
			call(i)
		}
		calls.Wait()
		for i, n := range got {
			if want := min(i, 1) + 1; n != want {
				t.Errorf("caller %d got read %d, want %d", i, n, want)
			}
		}
		if len(r.lanes) != 0 {
			t.Errorf("%d keys without callers are left", len(r.lanes))
		}
	})
}

func TestReadsOfOtherKeysAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reads[string]
		hold := make(chan struct{})
		go r.do(t.Context(), "slow", func(context.Context) (string, error) { <-hold; return "", nil })
		synctest.Wait()
		if got, err := r.do(t.Context(), "quick", func(context.Context) (string, error) { return "read", nil }); got != "read" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		close(hold)
	})
}

func TestReadsGoOnWhenWhoReadGoesAway(t *testing.T) {
	for name, cut := range map[string]func(context.Context) error{
		"with an error":             context.Context.Err,
		"with a part, and no error": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) { readsGoOn(t, cut) })
	}
}

// readsGoOn lets who reads go away during the read, which then ends with the error of cut.
func readsGoOn(t *testing.T, cut func(context.Context) error) {
	synctest.Test(t, func(t *testing.T) {
		var r reads[string]
		first, leave := context.WithCancel(t.Context())
		hold := make(chan struct{})
		go r.do(t.Context(), "log", func(context.Context) (string, error) { <-hold; return "", nil })
		synctest.Wait()
		left := make(chan error, 1)
		go func() {
			_, err := r.do(first, "log", func(ctx context.Context) (string, error) { <-ctx.Done(); return "a part", cut(ctx) })
			left <- err
		}()
		synctest.Wait()
		next := make(chan string, 1)
		go func() {
			got, _ := r.do(t.Context(), "log", func(context.Context) (string, error) { return "read", nil })
			next <- got
		}()
		synctest.Wait()
		close(hold)
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) && err != nil {
			t.Errorf("who went away got %v", err)
		}
		if got := <-next; got != "read" {
			t.Errorf("who stayed got %q", got)
		}
	})
}

func TestReadsReturnErrorsToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reads[int]
		want := errors.New("the store does not answer")
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if _, err := r.do(t.Context(), "log", func(context.Context) (int, error) { time.Sleep(time.Second); return 0, want }); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		}
		calls.Wait()
	})
}
