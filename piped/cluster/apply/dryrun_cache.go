package apply

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// dryRunsPerSecond and dryRunBurst limit the dry runs of comparisons on one cluster,
	// so that a wave of changes does not flood its admission webhooks.
	dryRunsPerSecond = 20
	dryRunBurst      = 100
	// maxVerdicts bounds the cache of objects that are in sync.
	maxVerdicts = 20_000
)

// dryRuns limits the rate of the dry runs by which objects of a cluster are compared, and
// caches which versions of objects are in sync. It is safe for concurrent use.
type dryRuns struct {
	limit *rate.Limiter

	mu     sync.Mutex
	inSync map[string]verdict // by UID
}

// verdict identifies a version of an object that is in sync with a desired state.
type verdict struct{ resourceVersion, against string }

func newDryRuns() *dryRuns {
	return &dryRuns{limit: rate.NewLimiter(dryRunsPerSecond, dryRunBurst), inSync: map[string]verdict{}}
}

// wait waits until the rate permits another dry run. It fails at once if that is after
// ctx's deadline.
func (t *dryRuns) wait(ctx context.Context) error { return t.limit.Wait(ctx) }

// known reports whether this version of an object is in sync with the desired state that
// against is a digest of.
func (t *dryRuns) known(uid, resourceVersion, against string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return resourceVersion != "" && t.inSync[uid] == verdict{resourceVersion, against}
}

// remember caches that this version of an object is in sync. Only the last version of each
// object is cached.
func (t *dryRuns) remember(uid, resourceVersion, against string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.inSync[uid]; !known && len(t.inSync) >= maxVerdicts {
		clear(t.inSync)
	}
	t.inSync[uid] = verdict{resourceVersion, against}
}
