package planner

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// Decider decides how applications of one kind are deployed: target is the
// application at the commit to deploy, and running loads it as it was at its last
// success, which it must have had; that is of kind NotFound when the commit is
// gone. Errors of kind deploy.Invalid end the deployment; others are tried again.
type Decider interface {
	Decide(ctx context.Context, app deploy.Application, d deploy.Deployment, target *source.Source,
		running func(context.Context) (*source.Source, error)) (deploy.Plan, error)
}

// Sources loads an application as it is at a commit; *source.Loader does.
type Sources interface {
	Load(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error)
}

// Config is what a Planner needs.
type Config struct {
	Store    *store.Store
	Sources  Sources
	Deciders map[string]Decider // by application kind
	Tenancy  Tenancy            // nil permits everything
	// Managed returns why deployments to a platform provider are held: another agent
	// manages its cluster. nil: none is ever held for that.
	Managed   func(ctx context.Context, provider string) error
	Workers   int           // how many applications are looked at at once; default 16
	ScanEvery time.Duration // the safety net behind the change feed and the timers; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// Planner is a component: call Run once.
type Planner struct {
	Config
	queue workqueue.TypedRateLimitingInterface[string] // IDs of applications with something to plan

	jobs *background.Jobs[string, verdict] // by application ID: what is decided about a deployment

	busy atomic.Int32 // workers that plan

	mu      sync.Mutex
	waiting map[string]bool // applications that may have pending deployments
}

// New returns a planner that has not started.
func New(c Config) *Planner {
	if c.Workers == 0 {
		c.Workers = 16 // most of what each does is to wait for the store, where many share a write
	}
	if c.ScanEvery == 0 {
		c.ScanEvery = 30 * time.Second
	}
	return &Planner{Config: c, waiting: map[string]bool{}, jobs: background.New[string, verdict](background.Config{AtOnce: c.Workers})}
}

// Run plans until ctx ends, and returns when no planning is under way.
func (p *Planner) Run(ctx context.Context) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, time.Minute)
	p.queue = workqueue.NewTypedRateLimitingQueue(limiter)
	feed := p.Store.Watch(deploy.TopicDeployment, deploy.TopicChain)
	defer feed.Close()
	var workers sync.WaitGroup
	for range p.Workers {
		workers.Go(func() { p.work(ctx) })
	}
	defer p.jobs.Close()
	defer workers.Wait()
	defer p.queue.ShutDown()

	scan := time.NewTicker(p.ScanEvery)
	defer scan.Stop()
	p.scan(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
			p.follow(ctx, feed.Take())
		case <-scan.C:
			p.scan(ctx)
		}
	}
}

// Busy returns how many applications are being looked at, and how many may be at
// once.
func (p *Planner) Busy() (now, limit int) { return int(p.busy.Load()), p.Workers }

// scan enqueues every application that has a pending deployment: at the start,
// and as the safety net. That is also what notices a clock that was set, and with
// it the end of a hold.
func (p *Planner) scan(ctx context.Context) {
	pending, err := p.Store.DeploymentsIn(ctx, deploy.Pending)
	if err != nil && ctx.Err() == nil {
		p.Logger.Error("cannot read deployments to plan; trying again", "error", err)
	}
	for _, d := range pending {
		p.queue.Add(d.ApplicationID)
	}
}

// follow enqueues the applications for which a change may mean something.
func (p *Planner) follow(ctx context.Context, changes []deploy.Change) {
	chains := map[string]bool{}
	for _, c := range changes {
		if c.Topic == deploy.TopicDeployment {
			if p.concerns(c) {
				p.queue.Add(c.ApplicationID)
			}
			continue
		}
		if !chains[c.ID] {
			chains[c.ID] = true
			p.followChain(ctx, c.ID)
		}
	}
}

// concerns reports whether a deployment's change may give something to plan, or
// to say of what waits: it is pending itself, or it may be what others of its
// application wait for.
func (p *Planner) concerns(c deploy.Change) bool {
	switch c.Status {
	case deploy.Pending, "":
		return true
	case deploy.Running, deploy.RollingBack:
		return false // it was waited for since it was planned
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting[c.ApplicationID]
}

// note records whether an application may have pending deployments.
func (p *Planner) note(appID string, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting {
		p.waiting[appID] = true
	} else {
		delete(p.waiting, appID)
	}
}

// followChain enqueues the applications that wait in a deployment chain: their turn
// has come, or they say from now on which other block they wait for.
func (p *Planner) followChain(ctx context.Context, id string) {
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

func (p *Planner) work(ctx context.Context) {
	for {
		app, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		p.busy.Add(1)
		err := p.planNext(ctx, app)
		p.busy.Add(-1)
		if err != nil && ctx.Err() == nil {
			p.Logger.Warn("cannot plan now; trying again", "appID", app, "error", err)
			p.queue.AddRateLimited(app)
		} else {
			p.queue.Forget(app)
		}
		p.queue.Done(app)
	}
}
