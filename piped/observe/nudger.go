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
	"github.com/c785c783/piped/piped/store"
)

// Limits of a Nudger.
const (
	nudgeScan    = 30 * time.Second // the rows are read this often without an event
	nudgeRetry   = 2 * time.Second  // and after the store did not answer
	nudgesAtOnce = 8                // workloads whose pods are told at the same time
)

// NudgerConfig is what a Nudger needs.
type NudgerConfig struct {
	Cluster    *cluster.Cluster
	Controller *watch.Controller // watches the objects that are not in Git
	Store      *store.Store
	Logger     *slog.Logger
	Now        func() time.Time
}

// Nudger tells the pods of one cluster that their configuration has changed: it does
// what the propagations in the store say is left to be done, and watches the named
// objects that are not in Git. What it does is stored before it is done; a restart of
// the agent goes on where it was, and touches nothing where nothing was left.
type Nudger struct {
	cfg  NudgerConfig
	pace pace
	slot chan struct{}
	done chan struct{} // something that ran has ended, or a watch is filled

	mu      sync.Mutex
	running map[string]bool // by propagationID
	names   map[string]bool // keys of the objects that propagations name

	watched map[namedPlace]*watch.Watch // see follow; of Run only
}

// NewNudger makes the component of one cluster.
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

// Run tells pods until ctx ends, and returns nil. It asks the cluster for nothing while
// nothing is to be done.
func (n *Nudger) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
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

// look begins what is due, and returns when to look again.
func (n *Nudger) startDue(ctx context.Context, running *sync.WaitGroup) time.Duration {
	due, err := n.cfg.Store.Propagations(ctx, store.PropagationQuery{Cluster: n.cfg.Cluster.Name(), Due: true})
	next, now := nudgeScan, n.cfg.Now()
	if err = errors.Join(err, n.updateWatches(ctx)); err != nil {
		if ctx.Err() == nil {
			n.cfg.Logger.WarnContext(ctx, "not all that pods are to be told can be read, will try again", "error", err)
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

// begin marks a propagation as running, unless it is.
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

// poke has Run look.
func (n *Nudger) wake() {
	select {
	case n.done <- struct{}{}:
	default:
	}
}

// tell does what is due of one propagation and stores how it went. A row that was
// written meanwhile is about another change: what was done stays done.
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
		return // gone on with after the restart
	}
	now := n.cfg.Now()
	next := propagate.Passed(p, outcome, now)
	if outcome.Problem != "" {
		n.cfg.Logger.WarnContext(ctx, "pods cannot be told of their configuration", "workload", p.Workload.String(), "error", outcome.Problem, "again", next.NextAt)
	}
	if _, err := n.cfg.Store.SavePropagation(ctx, next); err != nil && !deploy.IsKind(err, deploy.Conflict) && ctx.Err() == nil {
		n.cfg.Logger.WarnContext(ctx, "what pods were told cannot be stored, will try again", "workload", p.Workload.String(), "error", err)
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
