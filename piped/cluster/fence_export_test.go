package cluster

import "context"

// RetryWrite is retryWrite.
func (c *Cluster) RetryWrite(ctx context.Context, waiting func(error), fn func(ctx context.Context) error) error {
	return c.retryWrite(ctx, waiting, fn)
}
