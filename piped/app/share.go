package app

import (
	"context"
	"errors"
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

// addRights adds the rights of this replica to work: to all keys, or if the replicas share the work to
// those of the partitions that it holds.
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
	gained := a.owner.Gained()
	a.parts.add("gained partitions", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-gained:
				gained = a.owner.Gained()
				p.planner.Rescan()
				p.scheduler.Rescan()
			}
		}
	})
}

// newWorker builds the agent of a standby if the replicas share the work. It serves the addresses of the
// standby and does the work of its partitions. The replica that has the database does the rest: it answers
// plan previews and late approvals, and sends traces.
func newWorker(ctx context.Context, cfg *config.Piped, o Options, at *addresses) (_ *App, err error) {
	o.Logger = o.Logger.With("role", "worker")
	a := &App{log: o.Logger, at: at, parts: parts{grace: o.Grace}, metrics: newMetrics(o.Logger.With("component", "metrics"))}
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
	return a, a.build(ctx, cfg, o, st)
}

// pollPatience bounds how long the request of a poll waits for the database.
const pollPatience = 5 * time.Second

// poll returns a function that has a repository polled now, by the replica that watches it.
func (a *App) poll(st *store.Store) func(repoID string) {
	if a.owner == nil {
		return a.live.follower.Poll
	}
	return func(repoID string) {
		ctx, stop := context.WithTimeout(context.Background(), pollPatience)
		defer stop()
		if err := st.RequestPoll(ctx, repoID); err != nil {
			a.log.Warn("cannot request a poll of a repository; it is polled at the next interval", "repo", repoID, "error", err)
		}
	}
}

// workerRetry is the delay before a worker that has failed is started again.
const workerRetry = 5 * time.Second

// workers runs a worker while an agent stands by, and another one after a failure.
type workers struct {
	cfg     *config.Piped
	options Options
	at      *addresses
	log     *slog.Logger
	stop    context.CancelCauseFunc
	running sync.WaitGroup
}

// startWorkers starts a worker. The caller calls end.
func startWorkers(cfg *config.Piped, o Options, at *addresses, log *slog.Logger) *workers {
	w := &workers{cfg: cfg, options: o, at: at, log: log}
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

// runOne runs a worker until ctx ends or it fails.
func (w *workers) runOne(ctx context.Context) error {
	a, err := newWorker(ctx, w.cfg, w.options, w.at)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
