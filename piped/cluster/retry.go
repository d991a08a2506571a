package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	// requestTimeout bounds one request that reads or writes one object.
	requestTimeout = 30 * time.Second
	// retryFor is the default of ClusterConfig.RetryFor.
	retryFor = 2 * time.Minute
	// answerFor is how long a write waits for its response after ctx has ended.
	answerFor = 10 * time.Second
)

// Retry calls fn, with exponential backoff, while its error is a conflict, Transient or
// Unreachable, for at most ClusterConfig.RetryFor. A write that the fence holds is retried
// until ctx ends. Waiting, when set, is called with the reason of each wait. Retry returns
// the last error of fn, unclassified; when ctx ends, the cause of ctx wrapped with the reason
// of the last wait.
func (c *Cluster) Retry(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	return c.WhenPermitted(ctx, waiting, func(ctx context.Context) error { return c.retryAnswers(ctx, waiting, fn) })
}

// WhenPermitted calls fn. If the fence held a write of fn, WhenPermitted waits until the agent
// may write and calls fn again. Waiting, when set, is called with the reason of each wait.
// When ctx ends during a wait, the error wraps the cause of ctx and the reason.
func (c *Cluster) WhenPermitted(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	for {
		err := fn(ctx)
		held, is := isHeld(err)
		if !is || ctx.Err() != nil {
			return err
		}
		if waiting != nil {
			waiting(held)
		}
		if c.fence.wait(ctx) != nil {
			return stopped(ctx, held)
		}
	}
}

// retryAnswers is Retry, but returns at once when the fence holds a write.
func (c *Cluster) retryAnswers(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	patience, cancel := context.WithTimeout(ctx, c.retryFor)
	defer cancel()
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 1 << 20, Cap: 10 * time.Second}
	var last error
	for {
		err := attempt(ctx, fn)
		if err != nil && ctx.Err() != nil {
			return stopped(ctx, last)
		}
		if err == nil || !retriable(err) || patience.Err() != nil {
			return err
		}
		last = c.Classify(err)
		if waiting != nil {
			waiting(last)
		}
		pause := backoff.Step()
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-patience.Done():
			timer.Stop()
			if ctx.Err() != nil {
				return stopped(ctx, last)
			}
			return err
		}
	}
}

// RetryWrite is Retry for writes. When ctx ends, a request in flight is not cancelled but
// awaited for up to answerFor: otherwise the cluster could execute it after a successor of
// the caller, such as a rollback, has read the object.
func (c *Cluster) RetryWrite(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	return c.Retry(ctx, waiting, func(limited context.Context) error {
		if err := context.Cause(limited); err != nil {
			return err
		}
		answered, cancel := context.WithTimeout(context.WithoutCancel(limited), requestTimeout)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(answerFor, cancel) })
		defer stop()
		return fn(answered)
	})
}

// stopped returns the cause of ctx's end, wrapped with the reason of the last wait if any.
func stopped(ctx context.Context, waitedFor error) error {
	if waitedFor == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w while waiting: %w", context.Cause(ctx), waitedFor)
}

// LogOnce returns a waiting function for Retry. It logs the first wait for the cluster, and
// each reason why the fence holds a write once. Log may be nil.
func (c *Cluster) LogOnce(log deploy.StageLog) func(error) {
	var mu sync.Mutex
	logged := map[string]bool{}
	return func(err error) {
		reason, until := "", "trying again for up to "+c.retryFor.Round(time.Second).String()
		if held, is := isHeld(err); is {
			reason, until = held.Error(), "nothing is written until then"
		}
		mu.Lock()
		defer mu.Unlock()
		if log != nil && !logged[reason] {
			logged[reason] = true
			log.Infof("%v; %s", err, until)
		}
	}
}

// attempt calls fn with a context that requestTimeout limits.
func attempt(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return fn(ctx)
}

func retriable(err error) bool {
	if _, held := isHeld(err); held {
		return false
	}
	return apierrors.IsConflict(err) || Transient(err) || Unreachable(err)
}
