package background

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

type turnKey struct{}

// turn is the right of one job to work.
type turn struct {
	ctx      context.Context
	turns    chan struct{}
	held     bool
	cancel   context.CancelCauseFunc
	patience time.Duration
	note     func(on string) (tooMany bool)
}

func (t *turn) take() error {
	select {
	case t.turns <- struct{}{}:
		t.held = true
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

func (t *turn) leave() {
	if t.held {
		<-t.turns
		t.held = false
	}
}

// Wait says that the job of ctx waits from now on for something outside of the agent,
// which it names, until resume is called: then its turn to work comes again. Meanwhile
// another job works. Where too many wait already, the job is cancelled unless the wait
// ends soon, and its error, of kind Unavailable, says so. Outside of a job, Wait does
// nothing. One goroutine of a job calls it at a time.
func Wait(ctx context.Context, on string) (resume func()) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return func() {}
	}
	tooMany := t.note(on)
	t.leave()
	var end *time.Timer
	if tooMany {
		end = time.AfterFunc(t.patience, func() {
			t.cancel(deploy.Errorf(deploy.Unavailable, "%s takes long to answer, and too many others that do are waited for already", on))
		})
	}
	return func() {
		if end != nil {
			end.Stop()
		}
		t.note("")
		_ = t.take() // when the job was cancelled, its end is near
	}
}
