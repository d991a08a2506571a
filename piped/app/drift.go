package app

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/c785c783/piped/executor/kubernetes"
	clusterlive "github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/drift/undeployed"
	"github.com/c785c783/piped/piped/store"
)

// addDrift adds the drift detector.
func (a *App) addDrift(cfg *config.Piped, o Options, st *store.Store, src sources) {
	live := a.live
	a.drift = drift.New(drift.Config{
		Store: st, Clusters: live.platforms, Git: undeployed.New(live.repositories.at, src.loader),
		Expected: live.platforms.Expected, Rights: a.rights, PipedID: cfg.PipedID, Metrics: a.metrics.drift, SweepEvery: o.SweepEvery, Logger: o.Logger.With("component", "drift"), Now: o.Now, NewID: o.NewID,
	})
	live.clusters.onChange(a.drift.Wake)
	a.parts.add("drift", a.drift.Run)
}

// expectation converts the stored state of the stages for the detector.
func expectation(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (drift.Expected, error) {
	e, err := kubernetes.Expected(set, d, inventory)
	return drift.Expected{
		Commit: e.Commit, Objects: e.Objects, VariantKey: e.VariantKey, VariantValue: e.VariantValue, Ignore: e.Ignore, Conceal: e.Redactor,
	}, err
}

// comparedClusters adapts clusters to the detector.
type comparedClusters struct {
	clusters *clusters
	tenants  *tenants
}

// Members implements drift.Clusters.
func (c comparedClusters) Members(provider string) (drift.Members, time.Time, error) {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()
	conn := c.clusters.configured[provider]
	switch {
	case conn == nil:
		return nil, time.Time{}, fmt.Errorf("the platform provider %q is not configured", provider)
	case conn.problem != nil:
		return nil, conn.problemSince, conn.problem
	}
	if err := conn.refused(); err != nil {
		return nil, time.Time{}, err
	}
	return followed{conn.members, conn.observer, c.clusters.logger}, time.Time{}, nil
}

// followed also watches rollouts where members are watched.
type followed struct {
	*clusterlive.Members
	observer *workloads.Observer
	log      *slog.Logger
}

// Follow implements drift.Members.
func (f followed) Follow(objects []deploy.ObjectRef) {
	f.Members.Follow(objects)
	if err := f.observer.Follow(objects); err != nil {
		f.log.Warn("cannot watch workloads", "error", err)
	}
}

// Hold implements drift.Clusters.
func (c comparedClusters) Hold(provider string, app deploy.Application) (drift.Comparer, func(), error) {
	held, release, err := holdFor(c.clusters, c.tenants, provider, app)
	if err != nil {
		return nil, nil, err
	}
	return held.Client, release, nil
}

// holdFor returns a provider's cluster with the account of an application.
func holdFor(c *clusters, t *tenants, provider string, app deploy.Application) (held kubernetes.Cluster, release func(), err error) {
	held, release, err = c.Hold(provider)
	if err != nil {
		return held, nil, deploy.Errorf(deploy.Unavailable, "%w", err)
	}
	account, err := t.Tenant(app.Git).Account()
	if err != nil { // the rules must change, not the request
		release()
		return held, nil, &deploy.Error{Kind: deploy.Illegal, Err: err}
	}
	if user := account.User(); user != "" {
		if held.Client, err = held.As(user); err != nil {
			release()
			return held, nil, err
		}
	}
	return held, release, nil
}
