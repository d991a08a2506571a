package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// Why a cache may be stale although no request has failed.
var (
	errNotFilled    = errors.New("not read yet")
	ErrDisconnected = errors.New("the connection has ended and was not made anew yet")
	errEnded        = errors.New("the watch was given up")
)

// State returns nil while the cache follows the cluster. Otherwise it returns the reason,
// and since when: since the connection ended, since the first request failed or, for a cache
// that was never filled, since the watch was created. A connection that ends is normal, and
// is re-established at once.
func (w *Watch) State() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.bad != nil:
		return w.badSince, w.bad
	case !w.informer.HasSynced():
		return w.badSince, errNotFilled
	}
	return time.Time{}, nil
}

// Synced reports whether the cache has once contained all objects of the cluster.
func (w *Watch) Synced() bool { return w.informer.HasSynced() }

// noteRequest records the result of a list or watch request for State.
func (w *Watch) noteRequest(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the agent stops
	}
	w.mu.Lock()
	changed := (err == nil) != (w.bad == nil)
	if changed && w.informer.HasSynced() {
		w.badSince = w.controller.cluster.Now()
	}
	changed = changed || apierrors.IsForbidden(err) != apierrors.IsForbidden(w.bad) // an outage may end in a refusal
	w.bad = err
	w.mu.Unlock()
	if unanswered(err) {
		w.logFailure(ctx, nil, err) // retryUnanswered hides it from the reflector
	}
	if changed && w.resource.StateChanged != nil {
		w.resource.StateChanged()
	}
}

// notifyFilled calls StateChanged once the cache is filled.
func (w *Watch) notifyFilled(ctx context.Context) {
	select {
	case <-w.informer.HasSyncedChecker().Done():
		w.resource.StateChanged()
	case <-ctx.Done():
	}
}

// Notify calls f with the cached object before and after each change, nil if it does not
// exist then, and initially once for every existing object. Calls are sequential. f must
// return at once.
func (w *Watch) Notify(f func(before, after any)) error {
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { f(nil, obj) }, UpdateFunc: f, DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			f(obj, nil)
		},
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", w.resource.Resource, err)
	}
	return nil
}

// End ends the watch and its handlers without waiting for them. Its cache can still be
// read. The next use of the resource starts a new watch.
func (w *Watch) End() {
	c := w.controller
	c.mu.Lock()
	if id := w.resource.id(); c.watches[id] == w {
		delete(c.watches, id)
	}
	c.mu.Unlock()
	w.mu.Lock()
	ends := w.cancels
	if !w.ended {
		close(w.done)
	}
	w.ended, w.cancels = true, nil
	w.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// untilEnd returns f with a context that ends with the watch.
func (w *Watch) untilEnd(f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		ctx, end := context.WithCancel(ctx)
		defer end()
		w.mu.Lock()
		if w.ended {
			end()
		} else {
			w.cancels = append(w.cancels, end)
		}
		w.mu.Unlock()
		f(ctx)
	}
}
