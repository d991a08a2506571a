package source

import (
	"context"
	"sync"

	"github.com/c785c783/piped/piped/background"
)

// flights let concurrent callers of the same key share one piece of work. One of
// them does it; when its ctx ends before, another does.
type flights[K comparable, V any] struct {
	mu     sync.Mutex
	flying map[K]*flight[V]
}

// flight is one piece of work, whose result is read after done is closed.
type flight[V any] struct {
	turn    chan struct{} // holds a token while one of the callers works
	done    chan struct{}
	callers int
	value   V
	err     error
}

// do returns what work returns, which may be that of another caller. The error is
// that of ctx when it ends before.
func (f *flights[K, V]) do(ctx context.Context, key K, work func() (V, error)) (V, error) {
	own := f.join(key)
	defer f.leave(key, own)
	if err := own.board(ctx); err != nil {
		return *new(V), err
	}
	defer func() { <-own.turn }()
	select {
	case <-own.done: // by the one before
		return own.value, own.err
	default:
	}
	value, err := work()
	if err != nil && ctx.Err() != nil {
		return value, err // of this caller alone
	}
	own.value, own.err = value, err
	f.land(key, own)
	return value, err
}

// board returns when it is the caller's turn, which that gives back; the work may be
// done by then.
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

// land gives the result to everyone on the flight; who comes later begins anew.
func (f *flights[K, V]) land(key K, own *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flying, key)
	close(own.done)
}

// leave forgets a flight that the last caller has left before it landed.
func (f *flights[K, V]) leave(key K, own *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own.callers--; own.callers == 0 && f.flying[key] == own {
		delete(f.flying, key)
	}
}
