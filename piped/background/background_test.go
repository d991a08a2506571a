package background

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is work that ends with n when end is closed, and waits for a host until then.
func slow(n int, end <-chan struct{}) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		defer Wait(ctx, "host a")()
		select {
		case <-end:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func quick(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, nil }
}

func isRunning(err error, on string) bool {
	var running *Running
	return errors.As(err, &running) && running.On == on
}

// TestCallersDoNotWait: a caller waits as long as its patience is and no longer when it
// asks again; the end wakes it, and then the result is there, once.
func TestCallersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, end, woken := New[string, int](Config{}), make(chan struct{}), 0
		defer jobs.Close()
		do := func(n int) (int, error) {
			return jobs.Do(t.Context(), "a", "c1", func() { woken++ }, slow(n, end))
		}
		start := time.Now()
		for range 2 {
			if _, err := do(1); !isRunning(err, "host a") || err.Error() != "it waits for host a" {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(start); took != DefaultPatience {
			t.Errorf("the caller waited %s", took)
		}
		close(end)
		synctest.Wait()
		if woken != 1 {
			t.Errorf("woken %d times", woken)
		}
		for want := 1; want < 3; want++ { // the second one is another job
			if got, err := do(want); got != want || err != nil {
				t.Errorf("got %d, %v, want %d", got, err, want)
			}
		}
	})
}

// TestAnotherSubjectCancels: what was asked for before is not worked on any more, and a
// result that is old is none.
func TestAnotherSubjectCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, ended := New[string, int](Config{}), make(chan error, 1)
		defer jobs.Close()
		_, err := jobs.Do(t.Context(), "a", "c1", nil, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, nil
		})
		if !isRunning(err, "") {
			t.Errorf("got %v", err)
		}
		if got, err := jobs.Do(t.Context(), "a", "c2", nil, quick(2)); got != 2 || err != nil || <-ended == nil {
			t.Errorf("got %d, %v", got, err)
		}
		end := make(chan struct{})
		if _, err := jobs.Do(t.Context(), "a", "c3", nil, slow(3, end)); !isRunning(err, "host a") {
			t.Errorf("got %v", err)
		}
		close(end)
		time.Sleep(2 * keepFor)
		if got, err := jobs.Do(t.Context(), "a", "c3", nil, quick(4)); got != 4 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
	})
}

// TestWaitingLetsOthersWork: jobs that wait for something outside keep no other from its
// turn, however many there are; those that are too many end.
func TestWaitingLetsOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, end := New[int, int](Config{AtOnce: 2}), make(chan struct{})
		defer jobs.Close()
		var cancelled int
		for key := range 6 {
			_, err := jobs.Do(t.Context(), key, "c1", nil, slow(key, end))
			switch {
			case deploy.IsKind(err, deploy.Unavailable):
				cancelled++
			case !isRunning(err, "host a") && !isRunning(err, ""): // it is about to be cancelled
				t.Errorf("%d: got %v", key, err)
			}
		}
		if got, err := jobs.Do(t.Context(), 6, "c1", nil, quick(6)); got != 6 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
		time.Sleep(DefaultPatience)
		close(end)
		synctest.Wait()
		for key := range 6 {
			got, err := jobs.Do(t.Context(), key, "c1", nil, quick(key))
			if deploy.IsKind(err, deploy.Unavailable) {
				cancelled++
				got, err = jobs.Do(t.Context(), key, "c1", nil, quick(key))
			}
			if got != key || err != nil {
				t.Errorf("%d: got %d, %v", key, got, err)
			}
		}
		if cancelled != 4 {
			t.Errorf("%d were cancelled, want all but 2 of 6", cancelled)
		}
	})
}

// TestWorkHasBounds: of jobs that wait for nothing no more than AtOnce work.
func TestWorkHasBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, end, working := New[int, int](Config{AtOnce: 2}), make(chan struct{}), make(chan int, 6)
		defer jobs.Close()
		for key := range 6 {
			_, err := jobs.Do(t.Context(), key, "c1", nil, func(context.Context) (int, error) {
				working <- key
				<-end
				return key, nil
			})
			if !isRunning(err, "") {
				t.Errorf("%d: got %v", key, err)
			}
		}
		if len(working) != 2 {
			t.Errorf("%d work at once", len(working))
		}
		close(end)
		synctest.Wait()
		for key := range 6 {
			if got, err := jobs.Do(t.Context(), key, "c1", nil, quick(-1)); got != key || err != nil {
				t.Errorf("%d: got %d, %v", key, got, err)
			}
		}
	})
}

// TestCloseEndsAll: what goes on ends, although its caller has gone, and nothing begins
// after it.
func TestCloseEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := New[string, int](Config{})
		ctx, stop := context.WithCancel(t.Context())
		if _, err := jobs.Do(ctx, "a", "c1", nil, slow(1, nil)); !isRunning(err, "host a") {
			t.Errorf("got %v", err)
		}
		stop()
		synctest.Wait()
		if _, err := jobs.Do(t.Context(), "a", "c1", nil, quick(1)); !isRunning(err, "host a") {
			t.Errorf("after its caller has gone: got %v", err)
		}
		jobs.Close()
		if _, err := jobs.Do(t.Context(), "b", "c1", nil, quick(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
