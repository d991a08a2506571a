package planner

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// Decider decides how applications of one kind are deployed. target is the application
// at the commit to deploy. running loads it as of its last success; it must only be
// called if there is one, and returns NotFound when the commit is missing. Errors of
// kind deploy.Invalid end the deployment; others are retried.
type Decider interface {
	Decide(ctx context.Context, app deploy.Application, d deploy.Deployment, target *source.Source,
		running func(context.Context) (*source.Source, error)) (deploy.Plan, error)
}

// Sources loads an application at a commit; *source.Loader implements it.
type Sources interface {
	Load(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error)
}

// Config contains the dependencies and settings of a Planner.
type Config struct {
	Store    *store.Store
	Sources  Sources
	Deciders map[string]Decider // by application kind
	Tenancy  Tenancy            // nil permits everything
	// Managed returns why deployments to a platform provider are held: another agent
	// manages its cluster. A nil function never holds.
	Managed   func(ctx context.Context, provider string) error
	Rights    ownership.Rights // to plan, by application ID; nil means all
	Workers   int              // applications planned concurrently; default 16
	ScanEvery time.Duration    // fallback for missed changes and timers; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// Planner plans pending deployments. Call Run once.
type Planner struct {
	Config
	queue background.Queue // IDs of applications to plan

	jobs *background.Jobs[string, verdict] // evaluations by application ID

	rescans chan struct{} // requests of Rescan

	busy atomic.Int32 // busy workers

	mu      sync.Mutex
	waiting map[string]bool // applications that may have pending deployments
}

// New returns a stopped planner.
func New(c Config) *Planner {
	if c.Workers == 0 {
		c.Workers = 16 // workers mostly wait for the store, which combines concurrent writes
	}
	if c.ScanEvery == 0 {
		c.ScanEvery = background.DefaultScanEvery
	}
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	return &Planner{Config: c, rescans: make(chan struct{}, 1), waiting: map[string]bool{}, jobs: background.New[string, verdict](background.Config{AtOnce: c.Workers})}
}

// Run plans until ctx ends. It returns after the workers have stopped.
func (p *Planner) Run(ctx context.Context) error {
	defer p.jobs.Close()
	p.queue = background.NewQueue()
	background.Loop{
		Queue: p.queue, Workers: p.Workers, ScanEvery: p.ScanEvery, Rescan: p.rescans, Scan: p.scan, Changed: p.handleChanges, Handle: p.handle,
		Failed: func(app string, err error) {
			p.Logger.Warn("cannot plan now; trying again", "appID", app, "error", err)
		},
	}.Run(ctx, p.Store.Watch(deploy.TopicDeployment, deploy.TopicChain))
	return nil
}

// Busy returns the number of busy workers and their limit.
func (p *Planner) Busy() (now, limit int) { return int(p.busy.Load()), p.Workers }

// scan enqueues every application with a pending deployment: at the start, and as a
// fallback. It also detects the end of a hold after the clock was set.
func (p *Planner) scan(ctx context.Context) {
	pending, err := p.Store.DeploymentsIn(ctx, deploy.Pending)
	if err != nil && ctx.Err() == nil {
		p.Logger.Error("cannot read deployments to plan; trying again", "error", err)
	}
	for _, d := range pending {
		p.queue.Add(d.ApplicationID)
	}
}

// handleChanges enqueues the applications that a change may affect.
func (p *Planner) handleChanges(ctx context.Context, changes []deploy.Change) {
	chains := map[string]bool{}
	for _, c := range changes {
		if c.Topic == deploy.TopicDeployment {
			if p.isRelevant(c) {
				p.queue.Add(c.ApplicationID)
			}
			continue
		}
		if !chains[c.ID] {
			chains[c.ID] = true
			p.enqueueChain(ctx, c.ID)
		}
	}
}

// isRelevant reports whether a deployment's change may require planning or a new status
// reason: it is pending itself, or others of its application may wait for it.
func (p *Planner) isRelevant(c deploy.Change) bool {
	switch c.Status {
	case deploy.Pending, "":
		return true
	case deploy.Running, deploy.RollingBack:
		return false // others have been waiting for it since it was planned
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting[c.ApplicationID]
}

// setWaiting records whether an application may have pending deployments.
func (p *Planner) setWaiting(appID string, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting {
		p.waiting[appID] = true
	} else {
		delete(p.waiting, appID)
	}
}

// enqueueChain enqueues the applications that wait in a deployment chain: they may
// proceed, or wait for another block.
func (p *Planner) enqueueChain(ctx context.Context, id string) {
	chain, err := p.Store.Chain(ctx, id)
	if err != nil {
		if ctx.Err() == nil {
			p.Logger.Error("cannot read a deployment chain; trying again", "chain", id, "error", err)
		}
		return
	}
	for _, block := range chain.Blocks {
		for _, node := range block.Nodes {
			if node.Status == deploy.Pending && node.DeploymentID != "" {
				p.queue.Add(node.ApplicationID)
			}
		}
	}
}

// Rescan evaluates everything that is pending, after Rights has changed. It does not block.
func (p *Planner) Rescan() {
	select {
	case p.rescans <- struct{}{}:
	default:
	}
}

// handle plans the next deployment of an application, and counts the busy worker meanwhile. It leaves
// applications to which this replica has no right to others.
func (p *Planner) handle(ctx context.Context, app string) error {
	work, ok := p.Rights.Own(ctx, app)
	if !ok {
		return nil
	}
	defer work.Done()
	p.busy.Add(1)
	defer p.busy.Add(-1)
	err := p.planNext(work.Context, app)
	if deploy.IsKind(err, deploy.Fenced) || work.Context.Err() != nil {
		return nil
	}
	return err
}
