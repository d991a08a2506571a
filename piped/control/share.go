package control

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
)

// reads shares the results of concurrent reads with the same key, because many clients follow
// the same log or request the same list. A caller never gets a result that was read before its
// call. Results are shared and must not be changed. The zero value is ready to use.
type reads[V any] struct {
	mu    sync.Mutex
	lanes map[string]*lane[V]
}

// lane holds the reads of one key: while one runs, further callers join the next one.
type lane[V any] struct {
	callers int
	turn    chan struct{} // holds a token while a read runs
	forming *read[V]
}

// read is one read; its result is valid once done is closed.
type read[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// do returns the result of get, which this or another caller calls after do was called. It
// returns the error of ctx if that ends first. If the caller that runs get gives up, another
// caller repeats it.
func (r *reads[V]) do(ctx context.Context, key string, get func(context.Context) (V, error)) (V, error) {
	l, own := r.join(key)
	defer r.leave(key, l)
	select {
	case <-own.done:
		return own.value, own.err
	case <-ctx.Done():
		return *new(V), context.Cause(ctx)
	case l.turn <- struct{}{}:
	}
	defer func() { <-l.turn }()
	select {
	case <-own.done: // read by the previous caller
		return own.value, own.err
	default:
	}
	r.close(l, own)
	value, err := get(ctx)
	if ctx.Err() != nil {
		return value, err // not shared: it may have been cut short, even without an error
	}
	own.value, own.err = value, err
	close(own.done)
	return value, err
}

// answer calls do with the request as key, so that identical requests of callers who may view
// the same share the response.
func (r *reads[V]) answer(ctx context.Context, req proto.Message, get func(context.Context) (V, error)) (V, error) {
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return *new(V), err
	}
	return r.do(ctx, scopeKey(ctx)+string(key), get)
}

// join adds a caller to the next read of a key.
func (r *reads[V]) join(key string) (*lane[V], *read[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lanes == nil {
		r.lanes = map[string]*lane[V]{}
	}
	l := r.lanes[key]
	if l == nil {
		l = &lane[V]{turn: make(chan struct{}, 1)}
		r.lanes[key] = l
	}
	l.callers++
	if l.forming == nil {
		l.forming = &read[V]{done: make(chan struct{})}
	}
	return l, l.forming
}

// close prevents further callers from joining a read that is about to start.
func (r *reads[V]) close(l *lane[V], own *read[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.forming == own {
		l.forming = nil
	}
}

// leave deletes a key without callers.
func (r *reads[V]) leave(key string, l *lane[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(r.lanes, key)
	}
}
