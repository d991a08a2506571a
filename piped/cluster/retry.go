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
	// retryFor is how long a cluster that does not answer is asked again
	// before a call fails, unless ClusterConfig.RetryFor says otherwise.
	retryFor = 2 * time.Minute
	// answerFor is how long the answer to a request that writes is waited for after
	// the caller was told to stop.
	answerFor = 10 * time.Second
)

// retry calls fn until it succeeds, fails for good, or the cluster has not
// answered for the cluster's retry time. It waits longer after each attempt and
// tells waiting, when set, why it waits. While the agent may not write to the cluster, a
// request that would is not sent, and is waited for as long as ctx lasts. When ctx ends,
// its cause is returned, with what was waited for.
func (c *Cluster) retry(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	for {
		err := c.retryAnswers(ctx, waiting, fn)
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

// retryAnswers is retry for as long as the agent may write.
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

// retryWrite is retry for requests that change something. One that is under way when
// ctx ends is not broken off: the cluster may still do what it says, after whatever
// follows the caller, such as the rollback of its stage, has looked at the object.
func (c *Cluster) retryWrite(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	return c.retry(ctx, waiting, func(limited context.Context) error {
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

// stopped is the cause ctx ended for, with the error that was waited out.
func stopped(ctx context.Context, waitedFor error) error {
	if waitedFor == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w while waiting: %w", context.Cause(ctx), waitedFor)
}

// sayOnce returns what retry is to call while it waits: it tells log, if there is one,
// the first time, and once for each reason why the agent may not write.
func (c *Cluster) sayOnce(log deploy.StageLog) func(error) {
	var mu sync.Mutex
	said := map[string]bool{}
	return func(err error) {
		reason, until := "", "trying again for up to "+c.retryFor.Round(time.Second).String()
		if held, is := isHeld(err); is {
			reason, until = held.Error(), "nothing is written until then"
		}
		mu.Lock()
		defer mu.Unlock()
		if log != nil && !said[reason] {
			said[reason] = true
			log.Infof("%v; %s", err, until)
		}
	}
}

func attempt(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return fn(ctx)
}

func retriable(err error) bool {
	if _, held := isHeld(err); held {
		return false
	}
	return apierrors.IsConflict(err) || transient(err) || Unreachable(err)
}
