package observe

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// finishTimeout bounds the writes of Scalings on shutdown.
const finishTimeout = 2 * time.Second

// ScalingConfig is what Scalings needs.
type ScalingConfig struct {
	Observer *workloads.Observer
	Store    *store.Store
	Policy   rollout.ScalePolicy
	Redact   Redact // for the texts of records
	Logger   *slog.Logger
	Now      func() time.Time
}

// Scalings records the scalings of one cluster: changes of the number of pods of a
// Deployment or StatefulSet without a rollout, by any user or autoscaler. It covers workloads
// that carry the application label and have a rollout in the store; with an Observer of all
// workloads, also those that its selection selects.
//
// It reads the caches of workloads and sends no request to the cluster. Consecutive changes
// form one scaling, which is stored when it begins and when it ends. A workload that is
// scaled continuously thus costs two writes per rollout.ScalePolicy.Longest. A scaling that
// began and ended while the agent was not watching is not recorded.
type Scalings struct {
	cfg  ScalingConfig
	kick chan struct{} // a scaling has begun or completed

	mu      sync.Mutex
	watches map[string]*watch.Scope // by kind
	known   map[workloadKey]rollout.Scale
}

// NewScalings returns the component of one cluster.
func NewScalings(c ScalingConfig) *Scalings {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scalings{cfg: c, kick: make(chan struct{}, 1), watches: map[string]*watch.Scope{}, known: map[workloadKey]rollout.Scale{}}
}

// Run records scalings until ctx ends, and returns nil. It watches a kind of workload once
// the store has a rollout of it on the cluster.
func (x *Scalings) Run(ctx context.Context) error {
	changes := x.cfg.Store.Watch(deploy.TopicRollout)
	defer changes.Close()
	defer x.finish(ctx)
	missing := []string{rollout.KindDeployment, rollout.KindStatefulSet}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		begin := true // check whether the store has the first rollout of a missing kind
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-x.kick:
			begin = false
		case <-changes.C():
			begin = mentions(changes.Take(), missing)
		}
		next := retryInterval
		var err error
		if begin {
			missing, err = x.begin(ctx, missing)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			next = x.reconcileDue(ctx)
		case !deploy.IsKind(err, deploy.Unavailable):
			return err
		}
		timer.Reset(next)
	}
}

// mentions reports whether a change concerns a rollout of one of the kinds.
func mentions(changes []deploy.Change, kinds []string) bool {
	for _, c := range changes {
		for _, kind := range kinds {
			if strings.Contains(c.ID, "/apps/"+kind+"/") {
				return true
			}
		}
	}
	return false
}

// begin starts to watch each kind of workload that has a rollout in the store, or each kind
// where all workloads are watched, and returns the other kinds.
func (x *Scalings) begin(ctx context.Context, kinds []string) (missing []string, err error) {
	for i, kind := range kinds {
		wanted := x.cfg.Observer.All() != nil
		if !wanted {
			found, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: x.cluster(), WorkloadKind: kind, Limit: 1})
			if err != nil {
				return append(missing, kinds[i:]...), err
			}
			wanted = len(found) > 0
		}
		if !wanted {
			missing = append(missing, kind)
			continue
		}
		if err := x.watch(ctx, kind); err != nil {
			return append(missing, kinds[i:]...), err
		}
	}
	return missing, nil
}

// watch resumes the open records of a kind and handles its changes.
func (x *Scalings) watch(ctx context.Context, kind string) error {
	open, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Kind: deploy.RolloutKindScaling, Cluster: x.cluster(), WorkloadKind: kind, OpenOnly: true})
	if err != nil {
		return err
	}
	w, err := x.cfg.Observer.Watch(kind)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.watches[kind] = w
	for _, rec := range open {
		x.known[keyOf(rec.Workload)] = rollout.Resumed(rec)
	}
	x.mu.Unlock()
	return w.HandleDuring(ctx, "scaling", func(ctx context.Context, key types.NamespacedName) error {
		return x.reconcile(ctx, workloadKey{kind, key})
	})
}

func (x *Scalings) cluster() string { return x.cfg.Observer.Cluster().Name() }

// reconcileDue reconciles the workloads whose scaling may be due to end, and those of resumed
// records, which may have been deleted. It returns the delay until the next call.
func (x *Scalings) reconcileDue(ctx context.Context) time.Duration {
	now := x.cfg.Now()
	next := scanInterval
	for key, due := range x.open() {
		err := x.filled(ctx, key.kind)
		if err == nil && !now.Before(due) {
			err = x.reconcile(ctx, key)
		}
		if err != nil && !ownership.Over(ctx, err) {
			x.cfg.Logger.WarnContext(ctx, "cannot record a scaling; retrying", "workload", key.String(), "error", err)
			next = min(next, retryInterval)
		}
		if wait := due.Sub(now); wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// open returns the times at which open scalings are due; zero for resumed records.
func (x *Scalings) open() map[workloadKey]time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	due := map[workloadKey]time.Time{}
	for key, s := range x.known {
		switch {
		case s.Unseen:
			due[key] = time.Time{}
		case s.Open != nil:
			due[key] = s.Due(x.cfg.Policy)
		}
	}
	return due
}

func (x *Scalings) filled(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, workloads.FillTimeout)
	defer cancel()
	x.mu.Lock()
	w := x.watches[kind]
	x.mu.Unlock()
	return w.Filled(ctx)
}

// reconcile records the changes of one workload. It is idempotent.
func (x *Scalings) reconcile(ctx context.Context, key workloadKey) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var w *rollout.Workload
	app := deploy.Rollout{Cluster: x.cluster(), Workload: key.ref()}
	selected := false
	if cached, ok := x.watches[key.kind].Get(key.NamespacedName).(*workloads.Object); ok {
		selected = cached.Selected
		scaled := cached.Workload
		scaled.ScaledAt = scaled.ScaledAt.Add(-x.cfg.Observer.Cluster().Skew()) // by the agent's clock
		w, app.ApplicationID = &scaled, cached.Application
	}
	for {
		next, rec := x.known[key].Evaluate(app, w, x.cfg.Policy, x.cfg.Now())
		if rec != nil {
			var err error
			if next, err = x.store(ctx, next, *rec, selected); err != nil {
				return err
			}
		}
		if next == (rollout.Scale{}) {
			delete(x.known, key)
		} else {
			x.known[key] = next
		}
		if rec == nil {
			x.wake(next)
			return nil
		}
	}
}

// wake makes Run recompute when the next scaling is due.
func (x *Scalings) wake(s rollout.Scale) {
	if s.Open == nil {
		return
	}
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

// store stores the record of a scaling that has begun or ended and returns the next state.
func (x *Scalings) store(ctx context.Context, next rollout.Scale, rec deploy.Rollout, selected bool) (rollout.Scale, error) {
	if rec.Version == 0 {
		ours, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: rec.Cluster, Workload: rec.Workload, Own: x.cfg.Observer.All() != nil, Limit: 1})
		if err != nil {
			return next, err
		}
		applied := len(ours) > 0 && ours[0].UID == rec.UID
		if !applied && !selected { // no deployment of the agent has applied it yet
			next.Open = nil
			return next, nil
		}
		if selected {
			rec.ApplicationID = ownerOf(rec.ApplicationID, ours)
		}
	}
	saved, err := x.cfg.Redact.save(ctx, x.cfg.Store, rec)
	switch {
	case deploy.IsKind(err, deploy.Conflict): // another agent with this store recorded it first
		next.Open = nil
		return next, nil
	case err != nil:
		return next, err
	}
	if !saved.Phase.Terminal() {
		next.Open = &saved
		return next, nil
	}
	x.cfg.Logger.InfoContext(ctx, "scaling has ended", "workload", rec.Workload.String(), "from", rec.ReplicasBefore, "to", rec.ReplicasAfter,
		"by", rec.ChangedBy, "phase", rec.Phase, "reason", rec.Reason)
	return next, nil
}

// finish stores the ends of completed scalings, which a restart would lose.
func (x *Scalings) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	var problems []error
	for key, s := range x.known {
		rec := s.Completed()
		if rec == nil {
			continue
		}
		if _, err := x.cfg.Redact.save(ctx, x.cfg.Store, *rec); err != nil {
			problems = append(problems, err)
			continue
		}
		s.Open, s.ReadyAt = nil, time.Time{}
		x.known[key] = s
	}
	if err := errors.Join(problems...); err != nil && !deploy.IsKind(err, deploy.Fenced) {
		x.cfg.Logger.WarnContext(ctx, "cannot store the ends of scalings; they are stored after the next start", "error", err)
	}
}
