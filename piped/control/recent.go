package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// maxAge limits the age of a result that a call may accept.
const maxAge = 30 * time.Second

// recents shares the results of reads as reads does, and retains them for calls that accept what
// was read a short time ago, such as those of the page, which has many views open. Results are
// shared and must not be changed. The zero value is ready to use.
type recents[V any] struct {
	reads reads[V]

	mu    sync.Mutex
	byKey map[string]recent[V]
}

// recent is a result and when its read was requested.
type recent[V any] struct {
	value V
	at    time.Time
}

// do returns the result of get, which was called at most age ago, or is called after do was.
func (r *recents[V]) do(ctx context.Context, key string, age time.Duration, get func(context.Context) (V, error)) (V, error) {
	now := time.Now()
	if known, ok := r.known(key); ok && age > 0 && now.Sub(known.at) <= age {
		return known.value, nil
	}
	value, err := r.reads.do(ctx, key, get)
	if err == nil && ctx.Err() == nil { // a read that was cut short may be incomplete
		r.retain(key, recent[V]{value, now}, age > 0)
	}
	return value, err
}

// agedRequest is a request that may accept an earlier response.
type agedRequest interface {
	proto.Message
	GetMaxAgeMs() int64
}

// answer calls do with the request as key, so that callers who may view the same share the
// response to requests that differ only in the age that they accept.
func (r *recents[V]) answer(ctx context.Context, req agedRequest, get func(context.Context) (V, error)) (V, error) {
	same := proto.Clone(req).ProtoReflect()
	same.Clear(same.Descriptor().Fields().ByName("max_age_ms"))
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(same.Interface())
	if err != nil {
		return *new(V), err
	}
	return r.do(ctx, scopeKey(ctx)+string(key), acceptedAge(req), get)
}

func (r *recents[V]) known(key string) (recent[V], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byKey[key]
	return known, ok
}

// retain adds a result, for as long as a call may accept it, if there is a call that would, or in
// place of an older one: no call must get less than another one has got before.
func (r *recents[V]) retain(key string, v recent[V], accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byKey[key]
	if !ok && !accepted || v.at.Before(known.at) {
		return
	}
	if r.byKey == nil {
		r.byKey = map[string]recent[V]{}
	}
	r.byKey[key] = v
	time.AfterFunc(maxAge, func() { r.drop(key, v.at) })
}

// drop removes a result unless a newer one has replaced it.
func (r *recents[V]) drop(key string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[key].at.Equal(at) {
		delete(r.byKey, key)
	}
}

// acceptedAge returns the age of a result that a request accepts.
func acceptedAge(req interface{ GetMaxAgeMs() int64 }) time.Duration {
	return time.Duration(req.GetMaxAgeMs()) * time.Millisecond
}

// validMaxAge validates the age of a result that a request accepts.
func validMaxAge(field string, ms int64) error {
	if ms > maxAge.Milliseconds() {
		return broken(field, fmt.Sprintf("value must be at most %d", maxAge.Milliseconds()))
	}
	return notNegative(field, ms)
}
