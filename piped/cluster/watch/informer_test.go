package watch

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestAClusterThatWasAwayForLongIsFoundSoon: an unreachable cluster is retried at least
// every few seconds, however long the outage lasts.
func TestAClusterThatWasAwayForLongIsFoundSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back, failures := time.Now().Add(10*time.Minute), 0
		got, err := retryUnanswered(t.Context(), func(_ context.Context, err error) {
			if err != nil {
				failures++
			}
		}, func() (string, error) {
			if time.Now().Before(back) {
				return "", fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
			}
			return "found", nil
		})
		if late := time.Since(back); got != "found" || err != nil || late > 2*maxReconnectDelay || failures < 60 || failures > 150 {
			t.Errorf("%q, %v, %s late after %d failures", got, err, late, failures)
		}
	})
}
