package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// shares reports whether the replicas of an agent share its work.
func shares(cfg *config.Piped) bool { return cfg.Store.Replicas == config.ReplicasShare }

// addRights returns the rights of this replica to work on deployments: to all of them, or if the
// replicas share the work to those of the partitions that it holds.
func (a *App) addRights(cfg *config.Piped, o Options, st *store.Store) {
	a.rights = ownership.All{}
	if !shares(cfg) {
		return
	}
	feed := st.Watch(deploy.TopicOwnership)
	a.parts.onClose("ownership", func() error { feed.Close(); return nil })
	a.owner = ownership.New(ownership.Config{
		Table: st, Feed: feed, Replica: deploy.Replica{Host: store.Process(), Version: o.Version, StartedAt: o.Now()}, Logger: o.Logger.With("component", "ownership"),
	})
	a.rights = a.owner
	a.parts.add("ownership", a.owner.Run)
}

// addGained adds the component that has the phases evaluate everything when this replica gets
// partitions.
func (a *App) addGained(p phases) {
	if a.owner == nil {
		return
	}
	a.parts.add("gained partitions", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-a.owner.Gained():
				p.planner.Rescan()
				p.scheduler.Rescan()
			}
		}
	})
}

// newWorker builds the part of the agent that a standby runs if the replicas share the work: it plans
// and runs the deployments of its partitions. Everything else is done by the replica that has the
// database.
func newWorker(ctx context.Context, cfg *config.Piped, o Options) (_ *App, err error) {
	log := o.Logger.With("role", "worker")
	o.Logger = log
	a := &App{log: log, worker: true, parts: parts{grace: o.Grace}, metrics: newMetrics(log.With("component", "metrics"))}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	key, _, err := storeKey(cfg)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, cfg.Store.DSN.Reveal(), store.Options{
		Key: key, Now: o.Now, Logger: o.Logger, Metrics: a.metrics.store, Existing: true, Share: true, Agent: agentID(cfg),
	})
	if err != nil {
		return nil, err
	}
	a.parts.onClose("store", st.Close)
	a.parts.add("store", st.Run)
	storeID, err := st.Identity(ctx)
	if err != nil {
		return nil, err
	}
	a.live = newLive(cfg.DataDir, clusterConfig{
		lease: leaseSpec{cfg.PipedID, storeID, o.LeaseEvery}, permit: st.Owned, requests: a.metrics.requests,
	}, a.metrics.git, o)
	a.addRights(cfg, o, st)
	src, err := a.openSources(ctx, cfg, o, st)
	if err != nil {
		return nil, err
	}
	phases, err := a.addPhases(cfg, o, st, src)
	if err != nil {
		return nil, err
	}
	a.live.begin(ctx, src.setup, targets{newTrigger: phases.newTrigger, scheduler: phases.scheduler, remotes: src.remotes, charts: src.charts})
	log.Info("this replica works on its share of the deployments, next to the one that has the database", "version", o.Version)
	return a, nil
}

// wakeDrift has an application compared with Git, by the replica that has the database.
func (a *App) wakeDrift(id string) {
	if a.drift != nil {
		a.drift.Wake(id)
	}
}

// workerRetry is the delay before a worker that has failed is started again.
const workerRetry = 5 * time.Second

// errReload is the cause of the end of a worker whose configuration has changed.
var errReload = fmt.Errorf("the configuration has changed: %w", cluster.ErrReplaced)

// workers runs a worker while an agent stands by, and another one after a failure or when the
// configuration has changed.
type workers struct {
	cfg     *config.Piped
	options Options
	log     *slog.Logger
	stop    context.CancelCauseFunc
	running sync.WaitGroup
}

// startWorkers starts a worker. The caller calls end.
func startWorkers(cfg *config.Piped, o Options, log *slog.Logger) *workers {
	w := &workers{cfg: cfg, options: o, log: log}
	ctx, stop := context.WithCancelCause(context.Background())
	w.stop = stop
	w.running.Go(func() { w.run(ctx) })
	return w
}

// end stops the worker and waits for it. The Leases of clusters remain: the replica that has the
// database holds them, too.
func (w *workers) end() {
	w.stop(cluster.ErrReplaced)
	w.running.Wait()
}

func (w *workers) run(ctx context.Context) {
	for said := ""; ctx.Err() == nil; {
		err := w.runOne(ctx)
		if err != nil && ctx.Err() == nil {
			if err.Error() != said {
				said = err.Error()
				w.log.Warn("this replica cannot share the work; trying again", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(workerRetry):
			}
		}
	}
}

// runOne runs a worker until ctx ends, it fails or the configuration changes.
func (w *workers) runOne(ctx context.Context) error {
	a, err := newWorker(ctx, w.cfg, w.options)
	if err != nil {
		return err
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		if next := w.changed(run); next != nil {
			w.cfg = next
			stop(errReload)
		}
	})
	err = a.Run(run)
	stop(nil)
	return err
}

// changed returns the configuration when it has changed and is valid, nil when ctx ends.
func (w *workers) changed(ctx context.Context) *config.Piped {
	file := w.options.ConfigFile
	if file == "" {
		<-ctx.Done()
		return nil
	}
	used := digestOf(file, w.cfg.Files())
	for seen := used; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.options.ReloadEvery):
		}
		digest := digestOf(file, w.cfg.Files())
		if stable := digest == seen; stable && digest != used {
			used = digest
			if cfg, _, err := w.options.kinds().LoadPiped(file); err == nil && cfg.Store.Replicas == w.cfg.Store.Replicas {
				return cfg
			}
		}
		seen = digest
	}
}
