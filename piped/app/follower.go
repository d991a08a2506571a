package app

import (
	"context"
	"sync"

	"github.com/c785c783/piped/trigger"
)

// follower is the component that runs the trigger, and after a reload another
// one: never two at once. What the first had not finished the next takes up,
// since all of it is in the store.
type follower struct {
	replacing chan func() // each replaces current while no trigger runs

	mu      sync.Mutex
	current *trigger.Trigger
}

func newFollower() *follower { return &follower{replacing: make(chan func())} }

// replace runs build while no trigger runs, and then the trigger it returns. It
// returns when that is done, or when ctx ends. Before Run it must be set.
func (f *follower) replace(ctx context.Context, build func() *trigger.Trigger) {
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

// Look makes the agent look at a repository now.
func (f *follower) Look(repoID string) { f.get().Look(repoID) }

// Problem tells why a repository cannot be followed, nil if it can.
func (f *follower) Problem(repoID string) *trigger.Problem { return f.get().Problem(repoID) }

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
