package ownership

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// Rights gives the right to work on keys; *Owner implements it.
type Rights interface {
	// Own returns the right to work on a key, or false if this replica does not have it. The
	// caller calls Done of the right when the work has ended.
	Own(ctx context.Context, key string) (Work, bool)
	// Gained returns a channel that is closed when this replica gets rights the next time. A
	// caller that waits for a right gets the channel before it asks for the right.
	Gained() <-chan struct{}
}

// All is the right of the only replica at work: to every key, without an end.
type All struct{}

// Own implements Rights.
func (All) Own(ctx context.Context, _ string) (Work, bool) {
	return Work{Context: ctx, Done: func() {}}, true
}

// Gained implements Rights. There is nothing to gain.
func (All) Gained() <-chan struct{} { return nil }

// Hold calls work whenever this replica has the right to work on a key, until ctx ends. work
// returns when its context ends, and at its next step when moving is closed: another replica
// continues it. An error that it returns while it has the right ends Hold, unless the store has
// refused a write because the right is over.
func Hold(ctx context.Context, rights Rights, key string, work func(ctx context.Context, moving <-chan struct{}) error) error {
	for {
		gained := rights.Gained()
		if right, ok := rights.Own(ctx, key); ok {
			err := work(right.Context, right.Moving)
			ended := right.Context.Err() != nil || isClosed(right.Moving)
			right.Done()
			if !ended && !deploy.IsKind(err, deploy.Fenced) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gained:
		}
	}
}

// Interruptible returns a context that also ends when moving is closed, for work whose steps may all
// be interrupted.
func Interruptible(ctx context.Context, moving <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if moving != nil {
		go func() {
			select {
			case <-moving:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// Over reports whether work with a context cannot continue because the right to it is over: its
// error is not reported.
func Over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || deploy.IsKind(err, deploy.Fenced)
}
