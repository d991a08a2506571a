package apply

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// dryRunsPerSecond and dryRunBurst limit the dry runs of comparisons on one cluster,
	// so that a burst of changes does not flood its admission webhooks.
	dryRunsPerSecond = 20
	dryRunBurst      = 100
	// maxVerdicts is the maximum number of entries of dryRuns.inSync.
	maxVerdicts = 20_000
)

// dryRuns limits the rate of the dry runs of comparisons on one cluster, and caches which
// versions of objects are in sync. It is safe for concurrent use.
type dryRuns struct {
	limit *rate.Limiter

	mu     sync.Mutex
	inSync map[string]verdict // the last known version in sync, by UID of the object
}

// verdict identifies a version of an object and, by the digest comparison.against, the desired
// state that it is in sync with.
type verdict struct{ resourceVersion, against string }

func newDryRuns() *dryRuns {
	return &dryRuns{limit: rate.NewLimiter(dryRunsPerSecond, dryRunBurst), inSync: map[string]verdict{}}
}

// wait waits until the rate limit permits another dry run. If that is after ctx's deadline, it
// returns an error at once.
func (t *dryRuns) wait(ctx context.Context) error { return t.limit.Wait(ctx) }

// known reports whether the cache contains that this version of an object is in sync. Against
// is the digest of the desired state (comparison.against).
func (t *dryRuns) known(uid, resourceVersion, against string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return resourceVersion != "" && t.inSync[uid] == verdict{resourceVersion, against}
}

// remember caches that this version of an object is in sync, in place of an earlier version.
// It clears a full cache.
func (t *dryRuns) remember(uid, resourceVersion, against string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.inSync[uid]; !known && len(t.inSync) >= maxVerdicts {
		clear(t.inSync)
	}
	t.inSync[uid] = verdict{resourceVersion, against}
}
