package observe

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Limits of a Nudger.
const (
	nudgeInterval = 30 * time.Second // between reads of propagations without an event
	nudgeRetry    = 2 * time.Second  // after an error of the store
	nudgesAtOnce  = 8                // workloads whose pods are annotated concurrently
)

// NudgerConfig is what a Nudger needs.
type NudgerConfig struct {
	Cluster    *cluster.Cluster
	Controller *watch.Controller // watches the objects that are not in Git
	Store      *store.Store
	Logger     *slog.Logger
	Now        func() time.Time
}

// Nudger executes the propagations in the store for one cluster: it annotates the pods
// whose mounted ConfigMaps or Secrets have changed, so that the kubelet refreshes them at
// once. It also watches the objects that propagations name and that are not in Git.
// Propagations are stored before they are executed, so a restart resumes the pending ones
// and does not repeat the completed ones.
type Nudger struct {
	cfg  NudgerConfig
	pace pace
	slot chan struct{} // a semaphore for running propagations
	done chan struct{} // a propagation has ended, or the state of a watch has changed

	mu      sync.Mutex
	running map[string]bool // by propagationID
	names   map[string]bool // keys of the objects that propagations name

	watched map[namedPlace]*watch.Watch // see updateWatches; of Run only
}

// NewNudger returns the component of one cluster.
func NewNudger(c NudgerConfig) *Nudger {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Nudger{
		cfg: c, slot: make(chan struct{}, nudgesAtOnce), done: make(chan struct{}, 1), running: map[string]bool{}, watched: map[namedPlace]*watch.Watch{},
	}
}

// Run executes propagations until ctx ends, and returns nil. It sends no request to the
// cluster while none is due.
func (n *Nudger) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer n.endWatches()
	changes := n.cfg.Store.Watch(deploy.TopicPropagation)
	defer changes.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-n.done:
		case <-changes.C():
			changes.Take()
		}
		timer.Reset(n.startDue(ctx, &running))
	}
}

// startDue starts the due propagations, updates the watches, and returns the delay until the
// next call.
func (n *Nudger) startDue(ctx context.Context, running *sync.WaitGroup) time.Duration {
	due, err := n.cfg.Store.Propagations(ctx, store.PropagationQuery{Cluster: n.cfg.Cluster.Name(), Due: true})
	next, now := nudgeInterval, n.cfg.Now()
	if err = errors.Join(err, n.updateWatches(ctx)); err != nil {
		if ctx.Err() == nil {
			n.cfg.Logger.WarnContext(ctx, "cannot read or watch config propagations; retrying", "error", err)
		}
		next = nudgeRetry
	}
	for _, p := range due {
		if wait := p.NextAt.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		if n.begin(p) {
			running.Go(func() { n.run(ctx, p) })
		}
	}
	return next
}

func propagationID(p deploy.Propagation) string { return p.ApplicationID + " " + p.Workload.Key() }

// begin marks a propagation as running. It returns false if it already is.
func (n *Nudger) begin(p deploy.Propagation) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := propagationID(p)
	if n.running[id] {
		return false
	}
	n.running[id] = true
	return true
}

func (n *Nudger) end(p deploy.Propagation) {
	n.mu.Lock()
	delete(n.running, propagationID(p))
	n.mu.Unlock()
	n.wake()
}

// wake makes Run check for due propagations.
func (n *Nudger) wake() {
	select {
	case n.done <- struct{}{}:
	default:
	}
}

// run executes one propagation and stores the outcome. It drops the outcome if the row was
// replaced in the meantime, because the new row is for another change.
func (n *Nudger) run(ctx context.Context, p deploy.Propagation) {
	defer n.end(p)
	select {
	case n.slot <- struct{}{}:
		defer func() { <-n.slot }()
	case <-ctx.Done():
		return
	}
	outcome := n.nudge(ctx, p)
	if ctx.Err() != nil {
		return // resumed after the restart
	}
	now := n.cfg.Now()
	next := propagate.Passed(p, outcome, now)
	if outcome.Problem != "" {
		n.cfg.Logger.WarnContext(ctx, "cannot annotate pods for changed configuration; retrying", "workload", p.Workload.String(), "error", outcome.Problem, "again", next.NextAt)
	}
	if _, err := n.cfg.Store.SavePropagation(ctx, next); err != nil && !deploy.IsKind(err, deploy.Conflict) && !ownership.Over(ctx, err) {
		n.cfg.Logger.WarnContext(ctx, "cannot store the outcome of a config propagation; retrying", "workload", p.Workload.String(), "error", err)
		pause := time.NewTimer(nudgeRetry)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

func (n *Nudger) nudge(ctx context.Context, p deploy.Propagation) deploy.NudgeOutcome {
	c := n.cfg.Cluster
	if p.User != "" {
		as, err := c.As(p.User)
		if err != nil {
			return deploy.NudgeOutcome{Problem: err.Error()}
		}
		c = as
	}
	return nudge(ctx, c, p, &n.pace)
}
