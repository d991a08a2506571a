package app

import (
	"context"
	"sync"

	"github.com/c785c783/piped/trigger"
)

// follower is the component that runs the trigger, and after a reload another one, never
// two at once. The next resumes what the first had not finished, since all of its state
// is in the store.
type follower struct {
	replacing chan func() // replaces current while no trigger runs

	mu      sync.Mutex
	current *trigger.Trigger
}

func newFollower() *follower { return &follower{replacing: make(chan func())} }

// replace calls build while no trigger runs, and then has the returned trigger run. It
// returns when that is done or when ctx ends. The first call provides the trigger that Run
// starts with.
func (f *follower) replace(ctx context.Context, build func() *trigger.Trigger) {
	if f.get() == nil {
		f.set(build())
		return
	}
	done := make(chan struct{})
	select {
	case f.replacing <- func() { f.set(build()); close(done) }:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (f *follower) set(t *trigger.Trigger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = t
}

func (f *follower) get() *trigger.Trigger {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// Poll makes the trigger poll a repository now.
func (f *follower) Poll(repoID string) { f.get().Poll(repoID) }

// Problem returns why a repository cannot be watched, nil if it can.
func (f *follower) Problem(repoID string) *trigger.Problem { return f.get().Problem(repoID) }

// Watches reports whether this replica watches a repository, and not another one.
func (f *follower) Watches(repoID string) bool {
	t := f.get()
	return t == nil || t.Watches(repoID)
}

// Run runs the current trigger until ctx ends.
func (f *follower) Run(ctx context.Context) error {
	for {
		replaced, err := f.runOne(ctx)
		if !replaced {
			return err
		}
	}
}

// runOne runs the current trigger until it is replaced or ends.
func (f *follower) runOne(ctx context.Context) (replaced bool, err error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.get().Run(run) }()
	select {
	case err := <-ended:
		return false, err
	case replace := <-f.replacing:
		stop()
		if err := <-ended; err != nil {
			return false, err
		}
		replace()
		return true, nil
	}
}
