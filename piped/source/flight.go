package source

import (
	"context"
	"sync"

	"github.com/c785c783/piped/piped/background"
)

// flights deduplicates concurrent calls with the same key. One caller executes the call; if
// its ctx ends first, another caller takes over.
type flights[K comparable, V any] struct {
	mu     sync.Mutex
	flying map[K]*flight[V]
}

// flight is one shared call, whose result is read after done is closed.
type flight[V any] struct {
	turn    chan struct{} // holds a token while one of the callers works
	done    chan struct{}
	callers int
	value   V
	err     error
}

// do returns the result of work, executed by this caller or by a concurrent one with the same
// key. If ctx ends first, the error is its cause.
func (f *flights[K, V]) do(ctx context.Context, key K, work func() (V, error)) (V, error) {
	own := f.join(key)
	defer f.leave(key, own)
	if err := own.board(ctx); err != nil {
		return *new(V), err
	}
	defer func() { <-own.turn }()
	select {
	case <-own.done: // the previous caller completed it
		return own.value, own.err
	default:
	}
	value, err := work()
	if err != nil && ctx.Err() != nil {
		return value, err // not shared: only this caller was canceled
	}
	own.value, own.err = value, err
	f.land(key, own)
	return value, err
}

// board waits for the caller's turn to execute the call. The caller must release the turn. The
// call may already be complete.
func (own *flight[V]) board(ctx context.Context) error {
	select {
	case own.turn <- struct{}{}:
		return nil
	default:
	}
	defer background.Wait(ctx, "another rendering of the same commit")()
	select {
	case own.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *flights[K, V]) join(key K) *flight[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying == nil {
		f.flying = map[K]*flight[V]{}
	}
	own := f.flying[key]
	if own == nil {
		own = &flight[V]{turn: make(chan struct{}, 1), done: make(chan struct{})}
		f.flying[key] = own
	}
	own.callers++
	return own
}

// land publishes the result to all callers of the flight; later callers begin a new one.
func (f *flights[K, V]) land(key K, own *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flying, key)
	close(own.done)
}

// leave removes an incomplete flight when its last caller leaves.
func (f *flights[K, V]) leave(key K, own *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own.callers--; own.callers == 0 && f.flying[key] == own {
		delete(f.flying, key)
	}
}
