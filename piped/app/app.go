package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/executor/approval"
	"github.com/c785c783/piped/executor/script"
	"github.com/c785c783/piped/executor/wait"
	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/event"
	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/preview"
	"github.com/c785c783/piped/piped/retention"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web"
	"github.com/c785c783/piped/planner"
	"github.com/c785c783/piped/scheduler"
	"github.com/c785c783/piped/trigger"
)

// Options configure New in addition to the configuration file. The zero value is for
// production.
type Options struct {
	Version string
	Commit  string           // of the build; "" if unknown
	Logger  *slog.Logger     // default slog.Default()
	Now     func() time.Time // default time.Now
	NewID   func() string    // default random UUIDs

	// ConfigFile is the file of the configuration. It is reloaded when it, or a file that
	// it names, changes. "" disables reloads.
	ConfigFile  string
	ReloadEvery time.Duration    // poll interval of these files; default 2 s
	Reload      <-chan os.Signal // each signal reloads at once

	// Grace bounds how long Run waits for components to stop; default 30 s.
	Grace time.Duration

	// RolloutPolicy contains the thresholds for rollouts that applications do not set;
	// zero values are the defaults.
	RolloutPolicy rollout.Policy

	// SweepEvery is the interval of comparisons of every object with Git, also without a
	// watch event; default 6 h.
	SweepEvery time.Duration

	// LeaseEvery is the interval in which the Lease of a cluster is renewed, which excludes
	// agents of other stores; default 15 s. With a negative value there are no Leases.
	LeaseEvery time.Duration

	// ReadOnly has the agent write to no cluster, not even Leases: it can only observe.
	ReadOnly bool

	// RemoveAfter is the delay of the first run of retention; default 5 min.
	RemoveAfter time.Duration

	// disabled disables the agent before anything runs: see DryRun.
	disabled bool

	// platforms are further kinds of application.
	platforms []entry

	// DataCheckEvery is the interval of checks that the data directory was not replaced;
	// default 15 s.
	DataCheckEvery time.Duration
}

// App is one agent. Run it once.
type App struct {
	log   *slog.Logger
	parts parts
	live  *live
	dry   previews // for DryRun

	metrics *metrics
	drift   *drift.Detector

	api   *control.Server
	web   *web.Server
	ready atomic.Bool
	disk  *writable

	wakePreviews func() // lists open pull requests

	at     *addresses       // of a worker; nil if the agent binds them itself
	rights ownership.Rights // to work on keys, such as application IDs
	owner  *ownership.Owner // nil unless replicas share the work
}

// New builds the agent. Addresses are bound and the store is open and migrated
// when it returns; Git remotes and clusters have not been contacted. Either Run
// or Close releases everything.
//
// While a replica of the agent works, New waits and passes connections on to that one. It returns
// ErrChanged if the configuration has changed meanwhile.
func New(ctx context.Context, cfg *config.Piped, o Options) (_ *App, err error) {
	o = o.withDefaults()
	a := &App{log: o.Logger, parts: parts{grace: o.Grace}, metrics: newMetrics(o.Logger.With("component", "metrics"))}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	st, err := a.openState(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	if err = a.build(ctx, cfg, o, st); err == nil {
		err = st.Advertise(ctx, a.api.Addr(), a.web.Addr())
	}
	switch {
	case deploy.StoreUnavailable(err): // it was open
		return nil, st.Lost(err)
	case err != nil:
		return nil, err
	}
	return a, nil
}

// worker reports whether a is that of a standby which shares the work.
func (a *App) worker() bool { return a.at != nil }

// build adds all components. What only the replica with the database does is left out of a worker.
func (a *App) build(ctx context.Context, cfg *config.Piped, o Options, st *store.Store) error {
	storeID, err := st.Identity(ctx)
	if err != nil {
		return err
	}
	ownerKey, err := ensureOwnerKey(ctx, st, cfg.DataDir, o.Now())
	if err != nil {
		return err
	}
	a.addRights(cfg, o, st)
	access := clusterConfig{store: st, rights: a.rights, lease: leaseSpec{cfg.PipedID, storeID, o.LeaseEvery}, permit: st.Owned, requests: a.metrics.requests}
	if o.ReadOnly {
		access.lease.every, access.permit = -1, refuseWrites
	}
	a.live = newLive(cfg.DataDir, access, a.metrics.git, o)
	a.disk = &writable{dir: cfg.DataDir, store: st.CheckWrite, every: probeEvery, log: o.Logger.With("component", "store")}
	a.parts.add("writable", a.disk.Run)
	if err := a.addObservability(cfg, o, st); err != nil {
		return err
	}
	src, err := a.openSources(ctx, cfg, o, st)
	if err != nil {
		return err
	}
	phases, err := a.addPhases(cfg, o, st, src)
	if err != nil {
		return err
	}
	a.addDrift(cfg, o, st, src)
	if !a.worker() {
		a.addRequests(cfg, o, st, src, phases.planner)
	}
	a.addEvents(o, st)
	a.addRetention(o, st)
	courier, setReceivers := a.addNotifications(cfg, o, st)
	state := agentStatus{
		version: o.Version, commit: o.Commit, started: o.Now(), store: st, phases: phases, serves: src.serves, live: a.live, disk: a.disk, courier: courier,
	}
	a.wakePreviews = a.addPullPreviews(cfg, o, st, src.loader)
	a.dry = previews{phases.planner, a.live.repositories, src.concealed, a.live.platforms}
	users, err := a.listen(cfg, o, st, a.dry, state)
	if err != nil {
		return err
	}
	if err := announce(cfg, a.api.Addr(), ownerKey); err != nil {
		return err
	}
	a.parts.add("readiness", a.beReady)
	a.live.begin(ctx, src.setup, targets{
		newTrigger: phases.newTrigger, setReceivers: setReceivers, scheduler: phases.scheduler, remotes: src.remotes, charts: src.charts, api: a.api, web: a.web, users: users,
	})
	if o.ConfigFile != "" {
		a.parts.add("configuration", newReloader(o.ConfigFile, cfg, a.live, st, o).Run)
	}
	a.log.Info("agent ready to run", "version", o.Version, "api", a.api.Addr(), "web", a.web.Addr(), "ownerKey", ownerKey, "dataDir", cfg.DataDir)
	return nil
}

// openState locks the data directory and opens the store.
func (a *App) openState(ctx context.Context, cfg *config.Piped, o Options) (_ *store.Store, err error) {
	unlock, err := lockDataDir(ctx, cfg.DataDir)
	if err != nil {
		return nil, err
	}
	a.parts.onClose("data directory", unlock)
	key, made, err := storeKey(cfg)
	if err != nil {
		return nil, err
	}
	waiting := &standby{cfg: cfg, options: o, file: o.ConfigFile, log: o.Logger.With("component", "standby")}
	st, err := store.Open(ctx, cfg.Store.DSN.Reveal(), store.Options{
		Key: key, Now: o.Now, Logger: o.Logger, Metrics: a.metrics.store, Exclusive: true, Share: shares(cfg), Agent: agentID(cfg), Standby: waiting.follow,
	})
	if err == nil {
		a.parts.onClose("store", st.Close)
	}
	if err := errors.Join(err, waiting.end()); err != nil {
		return nil, err
	}
	if made {
		if err := keepStoreKey(cfg.DataDir, key); err != nil {
			return nil, err
		}
	}
	a.parts.add("store", st.Run)
	watch, err := newDataWatch(cfg, cmp.Or(o.DataCheckEvery, dataWatchEvery))
	if err != nil {
		return nil, err
	}
	a.parts.add("data directory", watch.Run)
	create := func(r *deploy.AgentRecord) { r.Disabled = r.Disabled || o.disabled }
	if _, err := st.UpdateAgent(ctx, create); err != nil { // creates the record at the first start
		return nil, err
	}
	return st, nil
}

// phases are the components that carry deployments from phase to phase.
type phases struct {
	newTrigger func(interval time.Duration, review bool) *trigger.Trigger
	planner    *planner.Planner
	scheduler  *scheduler.Scheduler
	scripts    *script.Executor
}

// addPhases adds the components of the three phases.
func (a *App) addPhases(cfg *config.Piped, o Options, st *store.Store, src sources) (p phases, err error) {
	live := a.live
	p.newTrigger = func(interval time.Duration, review bool) *trigger.Trigger {
		watched, unwatched := live.repositories.watchable()
		return trigger.New(trigger.Config{
			Store: st, Rights: a.rights, Repositories: watched, Unwatched: unwatched, Interval: interval, Review: review,
			Kinds: o.kinds(), Providers: live.platforms.Names(), ProviderKinds: live.platforms.providerKinds(), Live: live.platforms,
			Signatures: live.tenants, Logger: o.Logger.With("component", "trigger"), Now: o.Now, NewID: o.NewID,
		})
	}
	p.planner = planner.New(planner.Config{
		Store: st, Sources: src.loader, Deciders: live.platforms.deciders(),
		Tenancy: live.tenants, Managed: live.clusters.Managed, Rights: a.rights, Logger: o.Logger.With("component", "planner"), Now: o.Now,
	})
	if p.scripts, err = a.newScripts(cfg, o); err != nil {
		return p, err
	}
	p.scheduler = scheduler.New(scheduler.Config{
		Store: st, Executors: a.executors(cfg, o, st, src.loader, p.scripts), Providers: live.platforms.Names, Limits: live.Limits, Changes: live.repositories, Managed: live.clusters.managed,
		Rights: a.rights, Logger: o.Logger.With("component", "scheduler"), Now: o.Now,
	})
	a.parts.add("clusters", live.clusters.Run)
	a.parts.add("capabilities", src.serves.Run)
	if a.owner != nil { // the trigger fetches only the repositories of this replica
		a.parts.add("mirrors", live.repositories.fillAll)
	}
	a.parts.add("trigger", live.follower.Run)
	a.parts.add("planner", p.planner.Run)
	a.parts.add("scheduler", live.repositories.fetched(st, p.scheduler.Run))
	a.addGained(p)
	return p, nil
}

// addRequests adds the components that handle requests other than deployments.
func (a *App) addRequests(cfg *config.Piped, o Options, st *store.Store, src sources, plans *planner.Planner) {
	live := a.live
	a.parts.add("plan previews", preview.New(preview.Config{
		Store: st, Repositories: mergeable{live, a.owner != nil}, Sources: src.concealed, Plan: planOf(plans), Changes: changesOf(live.platforms), Place: live.clusters.placed, Workers: cfg.PlanPreview.WorkerNum,
		Timeout: cfg.PlanPreview.CommandHandleTimeout, Logger: o.Logger.With("component", "preview"), Now: o.Now,
	}).Run)
}

// addEvents adds the component that writes events into Git.
func (a *App) addEvents(o Options, st *store.Store) {
	a.parts.add("events", event.New(event.Config{
		Store: st, Rights: a.rights, Settings: a.live.eventSettings, Kinds: o.kinds(), Tenancy: a.live.tenants, Poll: a.poll(st),
		Logger: o.Logger.With("component", "events"), Now: o.Now,
	}).Run)
}

// addRetention adds the removal of old data.
func (a *App) addRetention(o Options, st *store.Store) {
	a.parts.add("retention", retention.New(retention.Config{
		Store: st, Rights: a.rights, Settings: a.live.Retention, Clusters: a.live.clusters.Names, Metrics: a.metrics.retention, First: o.RemoveAfter,
		Logger: o.Logger.With("component", "retention"), Now: o.Now,
	}).Run)
}

// executors returns the executors of the stages, by stage name.
func (a *App) executors(cfg *config.Piped, o Options, st *store.Store, loader *source.Loader, scripts *script.Executor) map[string]scheduler.Executor {
	analyses := analysis.New(analysis.Config{
		Store: st, Tree: a.live.repositories.Tree, Sources: loader, Providers: provider.Counted{Set: a.live.analysis, Queries: a.metrics.queries},
		Logger: o.Logger.With("component", "analysis"), Now: o.Now,
	})
	a.parts.onClose("analyses", analyses.Close)
	a.parts.onClose("analysis providers", a.live.analysis.Close)
	approvals := approval.New(approval.Config{Store: st, Commits: a.live.repositories, Logger: o.Logger.With("component", "approval")})
	if !a.worker() {
		a.parts.add("approvals", approvals.Run)
	}
	executors := map[string]scheduler.Executor{
		deploy.StageWait:               wait.New(wait.Config{Now: o.Now}),
		deploy.StageWaitApproval:       approvals,
		deploy.StageAnalysis:           analyses,
		deploy.StageScriptRun:          scripts,
		deploy.StageScriptRunRollback:  scripts,
		deploy.StageCustomSync:         scripts,
		deploy.StageCustomSyncRollback: scripts,
	}
	a.live.platforms.addStages(executors, analyses)
	return executors
}

// scriptsDir returns the directory of script stages.
func scriptsDir(cfg *config.Piped) string { return filepath.Join(cfg.DataDir, "scripts") }

// newScripts returns the executor of scripts.
func (a *App) newScripts(cfg *config.Piped, o Options) (*script.Executor, error) {
	return script.New(script.Config{
		Tree: a.live.repositories.Tree, Tenant: a.live.tenants.Tenant, Dir: scriptsDir(cfg),
		Isolation: ScriptIsolation(cfg, o.ConfigFile), Logger: o.Logger.With("component", "script"),
	})
}

// listen binds the addresses of the control API and of the HTTP server.
func (a *App) listen(cfg *config.Piped, o Options, st *store.Store, plans previews, state agentStatus) (u *users, err error) {
	if u, err = newUsers(cfg.Access, o); err != nil {
		return nil, err
	}
	a.api, err = control.New(control.Config{
		Listen: a.at.listenAPI(), Address: cfg.API.Address, CertFile: cfg.API.TLSCertFile, KeyFile: cfg.API.TLSKeyFile, ClientCAFile: cfg.API.ClientCAFile, Insecure: cfg.API.Insecure, InsecureHTTP: cfg.Web.Insecure,
		RateLimit: rateLimit(cfg), AuditFile: cfg.API.AuditFile, Policy: access.NewPolicy(access.RolesOf(cfg.Access)), SessionIdle: u.idleTimeout,
		Store: st, Agent: self{a.live, o.Version, o.Now()}, Planner: plans, Remover: a.live.platforms, Live: a.live.platforms, Objects: a.live.platforms, PodLines: podLines{a.live.platforms, a.live.platforms}, Drift: a.drift, Figures: figures.NewReader(st, o.Now), Status: state, Configurations: configurations{live: a.live, commits: plans, kinds: o.kinds()}, PipedID: cfg.PipedID, ProjectID: cfg.ProjectID,
		Logger: o.Logger, Now: o.Now, NewID: o.NewID, Metrics: a.metrics.calls,
	})
	if err != nil {
		return nil, err
	}
	u.api = a.api
	a.parts.onClose("control API", a.api.Close)
	a.parts.add("control API", a.api.Run)
	pages := a.addSignIn(o, st, u)
	a.web, err = web.New(web.Config{
		Listen: a.at.listenWeb(), Address: cfg.Web.Address, Certificate: webCertificate(cfg.Web), Ready: a.isReady, Metrics: a.metrics.handler(), API: withSession(pages, a.api.Handler()), SignIn: protectedPages{pages, a.api.RefuseHTTP}, Page: a.newPage(o, pages), Poll: a.poll(st), Deliveries: a.metrics.webhooks,
		Preview: proposals{a.live, st, o.NewID, a.wakePreviews}.preview, Logger: o.Logger.With("component", "web"),
	})
	if err != nil {
		return nil, err
	}
	a.parts.onClose("web", a.web.Close)
	a.parts.add("web", a.web.Run)
	return u, nil
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
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	if o.ReloadEvery == 0 {
		o.ReloadEvery = 2 * time.Second
	}
	return o
}

func (a *App) isReady() error {
	if !a.ready.Load() {
		return errors.New("the agent is starting or stopping")
	}
	return a.disk.Problem()
}

// APIAddr returns the address of the control API.
func (a *App) APIAddr() string { return a.api.Addr() }

// WebAddr returns the address of the HTTP server.
func (a *App) WebAddr() string { return a.web.Addr() }

// Run runs every component until ctx ends or one fails, waits for all of them
// and releases what New acquired. It returns nil after a requested stop. The error names the
// components that have not stopped after Options.Grace.
func (a *App) Run(ctx context.Context) error { return a.parts.run(ctx) }

// beReady is the component that makes the agent ready while components run.
func (a *App) beReady(ctx context.Context) error {
	a.ready.Store(true)
	<-ctx.Done()
	a.ready.Store(false)
	return nil
}

// Close releases what New acquired, in reverse order. Run calls it, too.
func (a *App) Close() error { return a.parts.close() }
