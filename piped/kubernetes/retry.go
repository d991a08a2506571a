package kubernetes

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// requestTimeout bounds one request that reads or writes one object.
	requestTimeout = 30 * time.Second
	// retryFor is how long a cluster that does not answer is asked again
	// before a call fails, unless ClusterConfig.RetryFor says otherwise.
	retryFor = 2 * time.Minute
)

// retry calls fn until it succeeds, fails for good, or the cluster has not
// answered for the cluster's retry time. It waits longer after each attempt and
// tells waiting, when set, why it waits.
func (c *Cluster) retry(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 1 << 20, Cap: 10 * time.Second}
	start := time.Now()
	for {
		err := attempt(ctx, fn)
		if err == nil || !retriable(ctx, err) || time.Since(start) > c.retryFor {
			return err
		}
		if waiting != nil {
			waiting(err)
		}
		pause := backoff.Step()
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func attempt(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return fn(ctx)
}

func retriable(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (apierrors.IsConflict(err) || transient(err) || unreachable(err))
}
