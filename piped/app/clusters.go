package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	clusterlive "github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/config"
	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/observe"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// clusters are the clusters of the platform providers. They may change while stages run:
//
//   - a replaced one is used by the stages that hold it until their end; later stages
//     get the new one;
//   - a removed one is used by its running deployments until their end; no others start
//     there;
//   - one that cannot be used is listed with the reason.
//
// It is a component that runs the caches of the clusters, and safe for concurrent use.
type clusters struct {
	userAgent string
	logger    *slog.Logger
	now       func() time.Time
	clusterConfig
	same cluster.Identities                         // detects providers of the same cluster
	wake atomic.Pointer[func(applicationID string)] // set by onChange

	liveChanges liveChanges

	mu         sync.Mutex
	configured map[string]*connection // by provider
	removed    map[string]*connection // by provider: no longer configured, with running deployments
	pending    []*connection          // not yet served by Run
	added      chan struct{}
}

// clusterConfig is what clusters need from the agent.
type clusterConfig struct {
	store    *store.Store     // nil: external rollouts, scalings and health are not recorded
	rights   ownership.Rights // to record them, by provider
	lease    leaseSpec
	permit   func(context.Context) error // nil if the clusters may be written to; optional
	requests *cluster.RequestMetrics     // optional
}

// connection is the access to the cluster of one provider.
type connection struct {
	spec       clusterSpec
	cluster    kubernetes.Cluster
	controller *watch.Controller
	observer   *workloads.Observer
	members    *clusterlive.Members
	lease      *cluster.StoreLease // nil if there are no Leases
	problem    error               // why it cannot be used; then cluster is unset

	problemSince time.Time

	users int                     // stages that hold it
	gone  bool                    // not available to further stages
	stop  context.CancelCauseFunc // stops its caches; nil until they run
}

// clusterSpec is the configuration of a connection.
type clusterSpec struct {
	name, kubeconfig, context, masterURL string

	content [sha256.Size]byte // of the kubeconfig; zero if it cannot be read

	rollouts kubeconfig.Rollouts
}

// same reports whether s and o need no different connection.
func (s clusterSpec) same(o clusterSpec) bool { return reflect.DeepEqual(s, o) }

// selection returns the workloads whose rollouts are recorded, nil for those of applications.
func (s clusterSpec) selection() *workloads.Selection {
	if !s.rollouts.All() {
		return nil
	}
	selector, err := labels.Parse(s.rollouts.LabelSelector)
	if err != nil {
		selector = labels.Nothing() // cannot happen: the configuration was checked
	}
	return &workloads.Selection{Namespaces: s.rollouts.Namespaces, ExcludeNamespaces: s.rollouts.ExcludeNamespaces, Labels: selector}
}

func specOf(p config.PlatformProvider) clusterSpec {
	access := p.Config.(*kubeconfig.Provider)
	s := clusterSpec{name: p.Name, kubeconfig: access.KubeConfigPath, context: access.Context, masterURL: access.MasterURL, rollouts: access.Rollouts}
	if data, err := os.ReadFile(s.kubeconfig); err == nil {
		s.content = sha256.Sum256(data)
	}
	return s
}

func newClusters(cfg clusterConfig, o Options) *clusters {
	return &clusters{
		userAgent: "piped/" + o.Version, logger: o.Logger.With("component", "kubernetes"), now: o.Now,
		configured: map[string]*connection{}, removed: map[string]*connection{}, added: make(chan struct{}, 1),
		clusterConfig: cfg,
	}
}

// onChange has f called when objects of an application have changed in a cluster, and with
// "" when any may have.
func (c *clusters) onChange(f func(applicationID string)) { c.wake.Store(&f) }

func (c *clusters) changed(applicationID string) {
	c.liveChanges.notify(applicationID)
	if f := c.wake.Load(); f != nil {
		(*f)(applicationID)
	}
}

// plan returns the connections for providers: the existing ones where nothing has changed. The
// error joins why some of them cannot be used, unless that is known already. Nothing changes
// before use.
func (c *clusters) plan(providers []config.PlatformProvider) (map[string]*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*connection{}
	var problems []error
	for _, p := range providers {
		spec, old := specOf(p), c.configured[p.Name]
		if old != nil && old.problem == nil && old.spec.same(spec) {
			next[p.Name] = old
			continue
		}
		conn := c.connect(spec)
		if old != nil && old.problem != nil && fmt.Sprint(conn.problem) == old.problem.Error() {
			conn = old
		} else if conn.problem != nil {
			problems = append(problems, conn.problem)
		}
		next[p.Name] = conn
	}
	return next, errors.Join(problems...)
}

// connect prepares the access to a cluster without a request.
func (c *clusters) connect(spec clusterSpec) *connection {
	access, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: spec.name, KubeConfigPath: spec.kubeconfig, Context: spec.context, MasterURL: spec.masterURL, UserAgent: c.userAgent, Logger: c.logger, Now: c.now,
		WrapTransport: c.requests.Wrap(spec.name), Permit: c.permit, Identities: &c.same,
	})
	if err != nil {
		return &connection{spec: spec, problem: err, problemSince: c.now()}
	}
	controller := watch.New(access)
	observer := workloads.NewObserverOf(access, controller, spec.selection())
	observer.OnChange(func(applicationID string, _ rollout.Workload) { c.liveChanges.notify(applicationID) })
	return &connection{
		spec: spec, controller: controller, observer: observer, lease: c.newLease(access),
		members: clusterlive.NewMembers(access, controller, c.changed),
		cluster: kubernetes.Cluster{Client: apply.New(access), Rollouts: workloads.StageObserver{Observer: observer}},
	}
}

// use replaces the configured connections.
func (c *clusters) use(next map[string]*connection) {
	defer c.changed("")
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, old := range c.configured {
		switch {
		case next[name] == old:
		case next[name] == nil && old.problem == nil:
			c.removed[name] = old
		default:
			old.retire()
		}
	}
	for name, conn := range next {
		if conn != c.configured[name] && conn.problem == nil {
			c.pending = append(c.pending, conn)
		}
		if back := c.removed[name]; back != nil {
			back.retire()
			delete(c.removed, name)
		}
	}
	c.configured = next
	select {
	case c.added <- struct{}{}:
	default:
	}
}

// anyRemoved reports whether there are connections for dropRemoved.
func (c *clusters) anyRemoved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.removed) > 0
}

// dropRemoved ends the connections of removed providers without running deployments.
func (c *clusters) dropRemoved(busy map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, conn := range c.removed {
		if !busy[name] {
			conn.retire()
			delete(c.removed, name)
		}
	}
}

// Names returns the names of the configured providers, sorted.
func (c *clusters) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.configured))
}

// unusable reports whether a configured provider cannot be used.
func (c *clusters) unusable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.configured {
		if conn.problem != nil {
			return true
		}
	}
	return false
}

// Hold implements the Clusters of the executors. It returns an error while another agent
// manages the cluster.
func (c *clusters) Hold(provider string) (kubernetes.Cluster, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.known(provider); conn != nil {
		if err := conn.refused(); err != nil {
			return kubernetes.Cluster{}, nil, err
		}
	}
	return c.hold(provider)
}

// known returns the connection of a provider, nil if there is none. clusters.mu is held.
func (c *clusters) known(provider string) *connection {
	if conn := c.configured[provider]; conn != nil {
		return conn
	}
	return c.removed[provider]
}

// hold is Hold without the check of the Lease. clusters.mu is held.
func (c *clusters) hold(provider string) (kubernetes.Cluster, func(), error) {
	conn := c.known(provider)
	if conn == nil {
		return kubernetes.Cluster{}, nil, fmt.Errorf("the platform provider %q is not configured; there are: %v", provider, slices.Sorted(maps.Keys(c.configured)))
	}
	if conn.problem != nil {
		return kubernetes.Cluster{}, nil, fmt.Errorf("the platform provider %q cannot be used: %w; fix that and sync the application again", provider, conn.problem)
	}
	conn.users++
	return conn.cluster, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		conn.users--
		conn.stopIfIdle()
	}), nil
}

// Capabilities implements capabilities.Clusters.
func (c *clusters) Capabilities(ctx context.Context, provider string) (deploy.Capabilities, error) {
	held, release, err := c.Hold(provider)
	if err != nil {
		return deploy.Capabilities{}, err
	}
	defer release()
	return held.Cluster.Capabilities(ctx)
}

// Run serves present and future connections until ctx ends.
func (c *clusters) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		c.mu.Lock()
		pending := c.pending
		c.pending = nil
		c.mu.Unlock()
		for _, conn := range pending {
			running.Go(func() { c.serve(ctx, conn) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.added:
		}
	}
}

// serve runs the caches of a connection until it is retired and no stage holds it.
func (c *clusters) serve(ctx context.Context, conn *connection) {
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.mu.Lock()
	conn.stop = stop
	conn.stopIfIdle()
	c.mu.Unlock()
	observers := c.observe(run, conn)
	err := conn.controller.Run(run)
	observers.Wait()
	conn.cluster.Close()
	switch {
	case err != nil:
		c.logger.Error("the caches of a cluster have failed", "cluster", conn.spec.name, "error", err)
	case ctx.Err() == nil:
		c.logger.Info("a replaced or removed connection has ended", "cluster", conn.spec.name)
	}
}

// observe runs until ctx ends what works on a connection next to the stages.
func (c *clusters) observe(ctx context.Context, conn *connection) *sync.WaitGroup {
	var running sync.WaitGroup
	if conn.lease != nil {
		running.Go(func() { conn.lease.Run(ctx) })
	}
	if c.store == nil {
		return &running
	}
	log := c.logger.With("cluster", conn.spec.name)
	vitals := observe.NewHealthEvents(observe.HealthConfig{Observer: conn.observer, Store: c.store, Redact: c.redact, Logger: log, Now: c.now})
	running.Go(func() {
		err := ownership.Hold(ctx, c.rights, conn.spec.name, func(ctx context.Context, moving <-chan struct{}) error {
			c.record(ctx, moving, conn, vitals, log)
			return nil
		})
		if err != nil { // cannot happen
			log.Error("the cluster is not observed until the agent is restarted", "error", err)
		}
	})
	return &running
}

// record records external rollouts and scalings, notifies pods of changed configuration, and reports the
// health of applications, until ctx ends or another replica continues.
func (c *clusters) record(ctx context.Context, moving <-chan struct{}, conn *connection, vitals *observe.HealthEvents, log *slog.Logger) {
	ctx, stop := ownership.Interruptible(ctx, moving)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	run := func(what string, component func(context.Context) error) {
		running.Go(func() {
			if err := component(ctx); err != nil && !ownership.Over(ctx, err) {
				log.Error(what+" until the agent is restarted", "error", err)
			}
		})
	}
	externals := observe.NewExternalRollouts(observe.ExternalConfig{Observer: conn.observer, Store: c.store, Redact: c.redact, Logger: log, Now: c.now})
	run("external rollouts are not recorded", externals.Run)
	lates := observe.NewLateCompletions(observe.LateConfig{Observer: conn.observer, Store: c.store, Logger: log, Now: c.now})
	running.Go(func() { lates.Run(ctx) })
	scalings := observe.NewScalings(observe.ScalingConfig{Observer: conn.observer, Store: c.store, Redact: c.redact, Logger: log, Now: c.now})
	run("scalings are not recorded", scalings.Run)
	nudger := observe.NewNudger(observe.NudgerConfig{
		Cluster: conn.cluster.Cluster, Controller: conn.controller, Store: c.store, Logger: log, Now: c.now,
	})
	run("pods are not notified of changed configuration", nudger.Run)
	running.Go(func() { vitals.Run(ctx) })
}

// redact removes the secrets of an application from a text.
func (c *clusters) redact(ctx context.Context, app deploy.Application, text string) (string, error) {
	kept, err := liveStates{store: c.store}.kept(ctx, app)
	return kept.Text(text), err
}

// retire ends the connection after its last user. clusters.mu is held.
func (c *connection) retire() {
	c.gone = true
	c.stopIfIdle()
}

func (c *connection) stopIfIdle() {
	if c.gone && c.users == 0 && c.stop != nil {
		c.stop(cluster.ErrReplaced)
	}
}
