package clustertest

import (
	"context"
	"sync"
	"testing"
)

// Run runs components until the test ends or stop is called, which waits for their end. Their
// errors fail the test.
func Run(t testing.TB, components ...func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, len(components))
	for _, run := range components {
		go func() { ended <- run(ctx) }()
	}
	stop = sync.OnceFunc(func() {
		cancel()
		for range components {
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	})
	t.Cleanup(stop)
	return stop
}
