package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/c785c783/piped/executor/approval"
	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/executor/script"
	"github.com/c785c783/piped/executor/wait"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/kubernetes/rollout"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web"
	"github.com/c785c783/piped/planner"
	plankube "github.com/c785c783/piped/planner/kubernetes"
	"github.com/c785c783/piped/scheduler"
	"github.com/c785c783/piped/trigger"
)

// sourceCacheBytes bounds the memory of sources that were loaded lately: the
// planner and the stages of a deployment load the same one.
const sourceCacheBytes = 8 << 20

// Options are what New needs beside the configuration. The zero value is what
// production uses.
type Options struct {
	Version string
	Logger  *slog.Logger     // default slog.Default()
	Now     func() time.Time // default time.Now
	NewID   func() string    // default random UUIDs

	// RolloutPolicy holds the thresholds by which rollouts are judged, where an
	// application does not set its own; zero values are the defaults.
	RolloutPolicy rollout.Policy
}

// component is a part of the agent that runs until its context ends.
type component struct {
	name string
	run  func(context.Context) error
}

// App is one agent. Run it once.
type App struct {
	log        *slog.Logger
	components []component
	cleanups   []cleanup // in the order of construction; run in reverse

	api   *control.Server
	web   *web.Server
	ready atomic.Bool
}

// cleanup releases one thing New acquired.
type cleanup struct {
	name string
	run  func() error
}

// New builds the agent. Addresses are bound and the store is open and migrated
// when it returns; Git remotes and clusters have not been contacted. Either Run
// or Close releases everything.
func New(ctx context.Context, cfg *config.Piped, o Options) (_ *App, err error) {
	o = o.withDefaults()
	a := &App{log: o.Logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()

	unlock, err := lockDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	a.onClose("data directory", unlock)
	key, err := storeKey(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, cfg.Store.DSN.Reveal(), store.Options{Key: key, Now: o.Now, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	a.onClose("store", st.Close)
	a.add("store", st.Run)
	ownerKey, err := ensureOwnerKey(ctx, st, cfg.DataDir, o.Now())
	if err != nil {
		return nil, err
	}

	repos, err := a.openRepositories(cfg, o)
	if err != nil {
		return nil, err
	}
	clusters := newClusters(o)
	connections, err := clusters.plan(cfg.Providers)
	if err != nil {
		a.log.Error("a platform provider cannot be used", "error", err)
	}
	clusters.use(connections)
	a.add("clusters", clusters.Run)
	loader := &source.Loader{Tree: treesOf(repos), CacheBytes: sourceCacheBytes}

	a.add("trigger", trigger.New(trigger.Config{
		Store: st, Repositories: repos, Providers: clusters.Names(), Interval: cfg.SyncInterval,
		Logger: o.Logger.With("component", "trigger"), Now: o.Now, NewID: o.NewID,
	}).Run)
	a.add("planner", planner.New(planner.Config{
		Store: st, Sources: loader, Deciders: map[string]planner.Decider{deploy.KindKubernetes: plankube.Decider{}},
		Logger: o.Logger.With("component", "planner"), Now: o.Now,
	}).Run)
	exec := kubernetes.New(kubernetes.Config{
		Store: st, Sources: loader, Clusters: clusters, PipedID: cfg.PipedID, Policy: o.RolloutPolicy, Now: o.Now,
	})
	approvals := approval.New(approval.Config{Store: st, Logger: o.Logger.With("component", "approval")})
	a.add("approvals", approvals.Run)
	scripts, err := script.New(script.Config{
		Tree: treesOf(repos), Dir: filepath.Join(cfg.DataDir, "scripts"), Logger: o.Logger.With("component", "script"),
	})
	if err != nil {
		return nil, err
	}
	a.add("scheduler", scheduler.New(scheduler.Config{
		Store:     st,
		Providers: clusters.Names,
		Limits: func() scheduler.Limits {
			return scheduler.Limits{Deployments: cfg.Limits.Deployments, PerCluster: cfg.Limits.PerCluster}
		},
		Executors: map[string]scheduler.Executor{
			deploy.StageK8sSync:           exec.Sync(),
			deploy.StageRollback:          exec.Rollback(),
			deploy.StageWait:              wait.New(wait.Config{Now: o.Now}),
			deploy.StageWaitApproval:      approvals,
			deploy.StageScriptRun:         scripts,
			deploy.StageScriptRunRollback: scripts,
		},
		Logger: o.Logger.With("component", "scheduler"), Now: o.Now,
	}).Run)

	if a.api, err = control.New(control.Config{
		Address: cfg.API.Address, CertFile: cfg.API.TLSCertFile, KeyFile: cfg.API.TLSKeyFile, Insecure: cfg.API.Insecure,
		Store: st, PipedID: cfg.PipedID, ProjectID: cfg.ProjectID,
		Logger: o.Logger.With("component", "control"), Now: o.Now, NewID: o.NewID,
	}); err != nil {
		return nil, err
	}
	a.onClose("control API", a.api.Close)
	a.add("control API", a.api.Run)
	if a.web, err = web.New(web.Config{Address: cfg.Web.Address, Ready: a.isReady, Logger: o.Logger.With("component", "web")}); err != nil {
		return nil, err
	}
	a.onClose("web", a.web.Close)
	a.add("web", a.web.Run)
	a.log.Info("agent ready to run", "version", o.Version, "api", a.api.Addr(), "web", a.web.Addr(), "ownerKey", ownerKey, "dataDir", cfg.DataDir)
	return a, nil
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	return o
}

// openRepositories opens the mirrors of all watched repositories.
func (a *App) openRepositories(cfg *config.Piped, o Options) ([]trigger.Repository, error) {
	var out []trigger.Repository
	for _, r := range cfg.Repositories {
		auth, err := gitAuth(cfg.Git, r.Remote)
		if err != nil {
			return nil, err
		}
		repo, err := git.Open(git.Config{
			ID: r.RepoID, Remote: r.Remote, Branch: r.Branch, Dir: filepath.Join(cfg.DataDir, "git"), Auth: auth,
			Logger: o.Logger.With("component", "git", "repo", r.RepoID), Now: o.Now,
		})
		if err != nil {
			return nil, err
		}
		a.onClose("repository "+r.RepoID, repo.Close)
		out = append(out, trigger.Repository{Config: r, Git: repo})
	}
	return out, nil
}

func (a *App) add(name string, run func(context.Context) error) {
	a.components = append(a.components, component{name, run})
}

func (a *App) onClose(name string, run func() error) {
	a.cleanups = append(a.cleanups, cleanup{name, run})
}

func (a *App) isReady() error {
	if !a.ready.Load() {
		return errors.New("the agent is starting or stopping")
	}
	return nil
}

// APIAddr returns the address of the control API.
func (a *App) APIAddr() string { return a.api.Addr() }

// WebAddr returns the address of the HTTP server.
func (a *App) WebAddr() string { return a.web.Addr() }

// Run runs every component until ctx ends or one fails, waits for all of them
// and releases what New acquired. It returns nil after a stop that was asked for.
func (a *App) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range a.components {
		group.Go(func() error {
			if err := c.run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			return nil
		})
	}
	a.ready.Store(true)
	<-ctx.Done()
	a.ready.Store(false)
	err := group.Wait()
	return errors.Join(err, a.Close())
}

// Close releases what New acquired, in reverse order.
func (a *App) Close() error {
	var errs []error
	for _, c := range slices.Backward(a.cleanups) {
		if err := c.run(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", c.name, err))
		}
	}
	a.cleanups = nil
	return errors.Join(errs...)
}
