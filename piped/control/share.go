package control

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
)

// reads lets concurrent callers of the same key share what they read: many who
// follow one log or look at one list ask for the same at the same moment. Nobody is given what
// was read before they asked. What is read is shared, and nobody may change it.
// The zero value is ready.
type reads[V any] struct {
	mu    sync.Mutex
	lanes map[string]*lane[V]
}

// lane is one key's reads: one runs, the next one forms.
type lane[V any] struct {
	callers int
	turn    chan struct{} // holds a token while a read runs
	forming *read[V]
}

// read is one read and its result, which is there once done is closed.
type read[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// do returns what get returns, called by this or by another caller after this call
// began. The error is that of ctx when it ends before; a read whose caller went away
// is done by another.
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
	case <-own.done: // by the one before
		return own.value, own.err
	default:
	}
	r.close(l, own)
	value, err := get(ctx)
	if err != nil && ctx.Err() != nil {
		return value, err // of this caller alone
	}
	own.value, own.err = value, err
	close(own.done)
	return value, err
}

// answer answers a request as do does: those who ask for the same share the answer.
func (r *reads[V]) answer(ctx context.Context, req proto.Message, get func(context.Context) (V, error)) (V, error) {
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return *new(V), err
	}
	return r.do(ctx, string(key), get)
}

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

// close lets nobody else join a read: it is about to begin.
func (r *reads[V]) close(l *lane[V], own *read[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.forming == own {
		l.forming = nil
	}
}

// leave forgets a key that nobody asks for any more.
func (r *reads[V]) leave(key string, l *lane[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(r.lanes, key)
	}
}
