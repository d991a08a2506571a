package kubernetes

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRetryToldToStop: whoever is told to stop while a cluster does not answer
// learns both, why it was stopped and what it waited for.
func TestRetryToldToStop(t *testing.T) {
	c := offline(t, nil)
	c.retryFor = time.Minute
	ctx, stop := context.WithCancelCause(t.Context())
	outage := &url.Error{Op: "Get", URL: "https://api", Err: errors.New("connection refused")}
	err := c.retry(ctx, func(error) { stop(deploy.StopTimedOut) }, func(context.Context) error { return outage })
	if !errors.Is(err, deploy.StopTimedOut) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v, want both causes", err)
	}
}
