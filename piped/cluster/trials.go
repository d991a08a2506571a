package cluster

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// trialsPerSecond and trialsAtOnce limit the dry runs of comparisons on one cluster,
	// so that a wave of changes does not flood its admission webhooks.
	trialsPerSecond = 20
	trialsAtOnce    = 100
	// maxVerdicts bounds how many objects are remembered as found in sync.
	maxVerdicts = 20_000
)

// trials are the dry runs by which objects of a cluster are compared: how many there
// may be, and which versions of objects they have found to be as in Git. It is safe for
// concurrent use.
type trials struct {
	limit *rate.Limiter

	mu     sync.Mutex
	inSync map[string]verdict // by UID
}

// verdict is what was found to be in sync.
type verdict struct{ resourceVersion, against string }

func newTrials() *trials {
	return &trials{limit: rate.NewLimiter(trialsPerSecond, trialsAtOnce), inSync: map[string]verdict{}}
}

// admit waits until another dry run may be made. The error, while ctx lasts, is that
// this would be too late for ctx.
func (t *trials) admit(ctx context.Context) error { return t.limit.Wait(ctx) }

// known reports whether this version of an object was found to be in sync with what
// against is a digest of.
func (t *trials) known(uid, resourceVersion, against string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return resourceVersion != "" && t.inSync[uid] == verdict{resourceVersion, against}
}

// remember notes that this version of an object is in sync. Of each object only the
// last version is known.
func (t *trials) remember(uid, resourceVersion, against string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.inSync[uid]; !known && len(t.inSync) >= maxVerdicts {
		clear(t.inSync) // what is asked for again is found out again
	}
	t.inSync[uid] = verdict{resourceVersion, against}
}
