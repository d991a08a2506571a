package git

import (
	"context"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
)

// flights lets concurrent callers share work: while one flight runs, later callers join the
// next one.
type flights struct {
	runway chan struct{} // holds one token while a flight runs

	mu      *sync.Mutex
	forming *flight
}

// flight is one run and its result, which is read after done is closed.
type flight struct {
	done   chan struct{}
	commit deploy.Commit
	moved  bool
	err    error
}

func newFlights() flights {
	return flights{runway: make(chan struct{}, 1), mu: new(sync.Mutex)}
}

// join returns a finished flight that began after the call. The first waiting caller that gets
// the runway runs the flight for all. join fails only if ctx ends; another caller then runs
// the flight.
func (fs *flights) join(ctx context.Context, run func(context.Context, *flight)) (*flight, error) {
	fs.mu.Lock()
	if fs.forming == nil {
		fs.forming = &flight{done: make(chan struct{})}
	}
	f := fs.forming
	fs.mu.Unlock()

	select {
	case <-f.done:
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case fs.runway <- struct{}{}:
	}
	defer func() { <-fs.runway }()
	select {
	case <-f.done:
		return f, nil
	default:
	}
	fs.mu.Lock()
	if fs.forming == f {
		fs.forming = nil // later callers need a later result
	}
	fs.mu.Unlock()
	f.err = nil // of a cancelled runner
	run(ctx, f)
	if f.err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	close(f.done)
	return f, nil
}
