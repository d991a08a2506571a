package planner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

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
	Store     *store.Store
	Sources   Sources
	Deciders  map[string]Decider // by application kind
	Workers   int                // how many deployments are planned at once; default 4
	ScanEvery time.Duration      // the safety net behind the change feed; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// Planner is a component: call Run once.
type Planner struct {
	Config
	queue workqueue.TypedRateLimitingInterface[string] // IDs of applications with something to plan
}

// New returns a planner that has not started.
func New(c Config) *Planner {
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.ScanEvery == 0 {
		c.ScanEvery = 30 * time.Second
	}
	return &Planner{Config: c}
}

// Run plans until ctx ends, and returns when no planning is under way.
func (p *Planner) Run(ctx context.Context) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, time.Minute)
	p.queue = workqueue.NewTypedRateLimitingQueue(limiter)
	feed := p.Store.Watch(deploy.TopicDeployment)
	defer feed.Close()
	var workers sync.WaitGroup
	for range p.Workers {
		workers.Go(func() { p.work(ctx) })
	}
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
			for _, c := range feed.Take() {
				p.queue.Add(c.ApplicationID)
			}
		case <-scan.C:
			p.scan(ctx)
		}
	}
}

// scan enqueues every application that has a pending deployment: at the start,
// and as the safety net.
func (p *Planner) scan(ctx context.Context) {
	pending, err := p.Store.DeploymentsIn(ctx, deploy.Pending)
	if err != nil && ctx.Err() == nil {
		p.Logger.Error("cannot read deployments to plan; trying again", "error", err)
	}
	for _, d := range pending {
		p.queue.Add(d.ApplicationID)
	}
}

func (p *Planner) work(ctx context.Context) {
	for {
		app, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.planNext(ctx, app); err != nil && ctx.Err() == nil {
			p.Logger.Warn("cannot plan now; trying again", "application", app, "error", err)
			p.queue.AddRateLimited(app)
		} else {
			p.queue.Forget(app)
		}
		p.queue.Done(app)
	}
}

// planNext plans the oldest pending deployment of an application, if it may.
func (p *Planner) planNext(ctx context.Context, appID string) error {
	d, err := p.next(ctx, appID)
	if d == nil || err != nil {
		return err
	}
	log := p.Logger.With("app", d.ApplicationName, "deployment", d.ID, "commit", d.Trigger.Commit.Short())
	plan, err := p.decide(ctx, *d)
	if err != nil && !deploy.IsKind(err, deploy.Invalid) && !deploy.IsKind(err, deploy.NotFound) {
		return err
	}
	now := p.Now()
	written, werr := p.Store.UpdateDeployment(ctx, d.ID, func(d *deploy.Deployment) error {
		if d.Status != deploy.Pending {
			return deploy.Errorf(deploy.Conflict, "deployment %s is %s, not PENDING", d.ID, d.Status)
		}
		if err != nil {
			return d.Complete(deploy.Failure, "Cannot be planned: "+err.Error(), now)
		}
		return d.Plan(plan, now)
	})
	if deploy.IsKind(werr, deploy.Conflict) {
		return nil // superseded, cancelled, or another one became active meanwhile
	}
	if werr == nil {
		log.Info("deployment planned", "status", written.Status, "summary", written.Summary, "reason", written.StatusReason)
	}
	return werr
}

// next returns the oldest pending deployment of the application; nil if there
// is none, or if one is active: its end wakes the planner again.
func (p *Planner) next(ctx context.Context, appID string) (*deploy.Deployment, error) {
	open, _, err := p.Store.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{appID},
		Statuses:       []deploy.Status{deploy.Pending, deploy.Planned, deploy.Running, deploy.RollingBack},
	})
	if err != nil {
		return nil, err
	}
	var oldest *deploy.Deployment
	for i, d := range open {
		if d.Status.Active() {
			return nil, nil
		}
		if oldest == nil || older(&d, oldest) {
			oldest = &open[i]
		}
	}
	return oldest, nil
}

func older(a, b *deploy.Deployment) bool {
	return cmp.Or(a.Trigger.At.Compare(b.Trigger.At), cmp.Compare(a.ID, b.ID)) < 0
}

// decide works out the plan of d. A panic on what the commit holds is the end of
// the deployment, not of the agent.
func (p *Planner) decide(ctx context.Context, d deploy.Deployment) (plan deploy.Plan, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			p.Logger.Error("planning panicked", "deployment", d.ID, "panic", cause, "stack", string(debug.Stack()))
			err = deploy.Errorf(deploy.Invalid, "internal error while planning: %v; please report it with the agent's log", cause)
		}
	}()
	app, err := p.Store.Application(ctx, d.ApplicationID)
	if err != nil {
		return deploy.Plan{}, err
	}
	decider := p.Deciders[app.Kind]
	if decider == nil {
		return deploy.Plan{}, deploy.Errorf(deploy.Invalid, "this agent cannot deploy applications of kind %s", app.Kind)
	}
	target, err := p.Sources.Load(ctx, d.Git, d.Trigger.Commit.Hash)
	if err != nil {
		return deploy.Plan{}, fmt.Errorf("load %s at commit %s: %w", d.Git.ConfigPath(), d.Trigger.Commit.Short(), err)
	}
	plan, err = decider.Decide(ctx, app, d, target, func(ctx context.Context) (*source.Source, error) {
		at := d.Git
		at.ConfigFile = app.LastSuccessful.ConfigFile
		return p.Sources.Load(ctx, at, app.LastSuccessful.Trigger.Commit.Hash)
	})
	if err != nil {
		return deploy.Plan{}, err
	}
	if last := app.LastSuccessful; last != nil {
		plan.RunningDeploymentID, plan.RunningCommit, plan.RunningConfigFile = last.DeploymentID, last.Trigger.Commit.Hash, last.ConfigFile
	}
	return plan, nil
}
