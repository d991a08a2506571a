package observe

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Intervals of ExternalRollouts.
const (
	scanInterval  = 30 * time.Second // between evaluations of open records without an event
	retryInterval = 2 * time.Second  // after an error of the cluster or the store
)

// recordsRead is the number of a workload's newest records that are read.
const recordsRead = 40

// ExternalConfig is what ExternalRollouts needs.
type ExternalConfig struct {
	Observer     *workloads.Observer
	Store        *store.Store
	FieldManager string // of the agent; default "piped"
	Redact       Redact // redacts the texts of records
	Logger       *slog.Logger
	Now          func() time.Time
}

// ExternalRollouts records the rollouts of one cluster that no deployment of the agent
// began: restarts by hand, kubectl set image, other tools. It covers Deployments that
// carry the application label and have a rollout in the store; revisions from before the
// agent's first rollout of a Deployment are not recorded.
//
// There is one record per revision, and it ends once. A rollout that ended while the agent
// was not watching is recorded with the result in the Deployment's conditions. Scaling,
// resyncs and changes of annotations create no revision and therefore no record. A change of
// a Deployment without a new revision costs one read of the caches.
type ExternalRollouts struct {
	cfg     ExternalConfig
	started time.Time

	mu       sync.Mutex
	known    map[types.NamespacedName]*knownWorkload
	presence rollout.Presence // availability of the cluster, checked while a record is open
}

// knownWorkload is the state of one Deployment.
type knownWorkload struct {
	uid       string
	revision  int64           // this revision and all earlier ones are recorded
	open      *deploy.Rollout // the record that has not ended, as stored; nil if all have
	undecided bool            // it is not known yet whether a new revision is external
}

// NewExternalRollouts returns the component of one cluster.
func NewExternalRollouts(c ExternalConfig) *ExternalRollouts {
	if c.FieldManager == "" {
		c.FieldManager = "piped"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &ExternalRollouts{cfg: c, known: map[types.NamespacedName]*knownWorkload{}}
}

// Run records external rollouts until ctx ends, and returns nil. It sends no request to
// the cluster before the store has a rollout on it.
func (x *ExternalRollouts) Run(ctx context.Context) error {
	if err := x.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(x.reconcileOpen(ctx))
	}
}

// begin calls prepare, and retries while the store is unavailable.
func (x *ExternalRollouts) begin(ctx context.Context) error {
	for {
		err := x.prepare(ctx)
		if !deploy.IsKind(err, deploy.Unavailable) {
			return err
		}
		retry := time.NewTimer(retryInterval)
		select {
		case <-ctx.Done():
			retry.Stop()
			return context.Cause(ctx)
		case <-retry.C:
		}
	}
}

// prepare waits for the store's first rollout on the cluster, resumes the open records and
// registers the handlers.
func (x *ExternalRollouts) prepare(ctx context.Context) error {
	if err := x.awaitFirst(ctx); err != nil {
		return err
	}
	open, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: x.cluster(), External: true, OpenOnly: true})
	if err != nil {
		return err
	}
	x.started = x.cfg.Now()
	for _, rec := range open {
		rec.LastProgress = x.started // the store does not have the progress
		x.known[types.NamespacedName{Namespace: rec.Workload.Namespace, Name: rec.Workload.Name}] = &knownWorkload{uid: rec.UID, open: &rec}
	}
	deployments, err := x.cfg.Observer.Watch(rollout.KindDeployment)
	if err != nil {
		return err
	}
	sets, err := x.cfg.Observer.WatchReplicaSets()
	if err != nil {
		return err
	}
	if err := errors.Join(deployments.Handle("external", x.reconcile), sets.Handle("external", func(ctx context.Context, key types.NamespacedName) error {
		// The deletion of a ReplicaSet changes the status of its Deployment.
		if set, ok := sets.Get(key).(*workloads.ReplicaSet); ok && set.Deployment != "" {
			return x.reconcile(ctx, types.NamespacedName{Namespace: key.Namespace, Name: set.Deployment})
		}
		return nil
	})); err != nil {
		return err
	}
	return errors.Join(deployments.Filled(ctx), sets.Filled(ctx))
}

// awaitFirst returns once the store has a rollout on the cluster.
func (x *ExternalRollouts) awaitFirst(ctx context.Context) error {
	changes := x.cfg.Store.Watch(deploy.TopicRollout)
	defer changes.Close()
	for {
		found, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: x.cluster(), Limit: 1})
		if err != nil || len(found) > 0 {
			return err
		}
		retry := time.NewTimer(scanInterval)
		select {
		case <-ctx.Done():
		case <-retry.C:
		case <-changes.C():
			changes.Take()
		}
		retry.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (x *ExternalRollouts) cluster() string { return x.cfg.Observer.Cluster().Name() }

// reconcileOpen reconciles every Deployment with an open record or an undecided change, and
// returns the delay until the next call. It is needed without an event because a deadline
// can end a rollout, and the event of a Deployment's deletion may be missed.
func (x *ExternalRollouts) reconcileOpen(ctx context.Context) (next time.Duration) {
	x.mu.Lock()
	keys := slices.Collect(maps.Keys(x.known))
	keys = slices.DeleteFunc(keys, func(key types.NamespacedName) bool {
		return x.known[key].open == nil && !x.known[key].undecided
	})
	x.mu.Unlock()
	next = scanInterval
	for _, key := range keys {
		if err := x.reconcile(ctx, key); err != nil && ctx.Err() == nil {
			x.cfg.Logger.WarnContext(ctx, "cannot record an external rollout; retrying", "deployment", key.String(), "error", err)
			next = retryInterval
		}
	}
	return next
}

// reconcile records new revisions of one Deployment and updates its open record. It is
// idempotent.
func (x *ExternalRollouts) reconcile(ctx context.Context, key types.NamespacedName) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	app := deploy.Rollout{Cluster: x.cluster(), Workload: deploy.ObjectRef{
		Group: "apps", Version: "v1", Kind: rollout.KindDeployment, Namespace: key.Namespace, Name: key.Name,
	}}
	s, err := x.cfg.Observer.Cached(ctx, app)
	if err != nil {
		return err
	}
	known := x.known[key]
	if known != nil && known.open != nil {
		if err := x.follow(ctx, known, s); err != nil {
			return err
		}
	}
	if s.Workload == nil {
		if known != nil && known.open == nil {
			delete(x.known, key)
		}
		return nil
	}
	if known == nil || known.uid != s.Workload.UID && known.open == nil {
		known = &knownWorkload{uid: s.Workload.UID}
		x.known[key] = known
	}
	if known.uid != s.Workload.UID || newestRevision(s) <= known.revision {
		return nil
	}
	app.ApplicationID = x.cfg.Observer.Application(key)
	return x.record(ctx, known, app, s)
}

// newestRevision returns the highest revision of the ReplicaSets.
func newestRevision(s rollout.Snapshot) (highest int64) {
	for _, r := range s.Revisions {
		highest = max(highest, r.Number)
	}
	return highest
}

// record stores records of new revisions. It reads the cluster again before it stores any,
// because the caches may be stale.
func (x *ExternalRollouts) record(ctx context.Context, known *knownWorkload, app deploy.Rollout, s rollout.Snapshot) error {
	found, decided, err := x.unrecorded(ctx, app, s)
	if err == nil && len(found) > 0 {
		if s, err = x.cfg.Observer.Confirm(ctx, app); err == nil {
			found, decided, err = x.unrecorded(ctx, app, s)
		}
	}
	if err != nil {
		return err
	}
	for _, rec := range found {
		saved, err := x.cfg.Redact.save(ctx, x.cfg.Store, rec)
		if deploy.IsKind(err, deploy.Conflict) {
			continue // another agent with this store recorded it first
		}
		if err != nil {
			return err
		}
		x.cfg.Logger.InfoContext(ctx, "external rollout", "workload", rec.Workload.String(), "revision", rec.Revision, "phase", rec.Phase, "reason", rec.Reason)
		if !saved.Phase.Terminal() {
			known.open = &saved
		}
	}
	known.undecided = !decided
	if decided {
		known.revision = newestRevision(s)
	}
	if known.open != nil {
		return x.follow(ctx, known, s)
	}
	return nil
}

// unrecorded returns records for the revisions in s that are not in the store; decided
// reports whether the result is final. It reads the store after the cluster: a stage stores
// its record before it applies, so a revision of a stage is always found.
func (x *ExternalRollouts) unrecorded(ctx context.Context, app deploy.Rollout, s rollout.Snapshot) (found []deploy.Rollout, decided bool, err error) {
	recorded, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: app.Cluster, Workload: app.Workload, Limit: recordsRead})
	if err != nil {
		return nil, false, err
	}
	found, decided = rollout.External(app, s, recorded, x.cfg.FieldManager, x.cfg.Now())
	return found, decided, nil
}

// follow evaluates the open record by s and stores a change of its phase.
func (x *ExternalRollouts) follow(ctx context.Context, known *knownWorkload, s rollout.Snapshot) error {
	policy := x.policy(ctx)
	v, s, err := x.cfg.Observer.Evaluate(ctx, *known.open, s, policy, x.cfg.Now)
	if err != nil {
		return err
	}
	if !v.Mark && v.Record.Phase == known.open.Phase {
		known.open = &v.Record
		return nil
	}
	rec := v.Record
	if v.Mark {
		rec = x.ended(ctx, rec, s)
	}
	saved, err := x.cfg.Redact.save(ctx, x.cfg.Store, rec)
	switch {
	case deploy.IsKind(err, deploy.Conflict): // another agent with this store updates the record
		known.open = nil
		return nil
	case err != nil:
		return err
	}
	known.open = &saved
	if saved.Phase.Terminal() {
		known.open = nil
		x.cfg.Logger.InfoContext(ctx, "external rollout has ended", "workload", rec.Workload.String(), "revision", rec.Revision, "phase", rec.Phase, "reason", rec.Reason)
	}
	return nil
}

// policy returns the policy for evaluating open records. It also polls the Lease of the
// cluster's controllers, and postpones the deadlines of open records by the time for which
// the cluster or its controllers were unavailable.
func (x *ExternalRollouts) policy(ctx context.Context) rollout.Policy {
	if now := x.cfg.Now(); x.presence.Due(now) {
		ctx, cancel := context.WithTimeout(ctx, workloads.FillTimeout)
		defer cancel()
		lease, err := x.cfg.Observer.Controllers(ctx)
		if err != nil {
			x.presence.Lost(now, err)
		} else if was := x.presence.Seen(now, lease); was > 0 {
			for _, known := range x.known {
				if known.open != nil {
					later := rollout.Postponed(*known.open, was, now)
					known.open = &later
				}
			}
		}
	}
	return x.presence.Policy(rollout.Policy{NoFailFast: true, FieldManager: x.cfg.FieldManager}, x.started)
}

// ended completes an ended record. If the rollout ended before the agent started to watch,
// the completion time is that of the Deployment's condition. Otherwise the breakdown of the
// duration is measured by the pods.
func (x *ExternalRollouts) ended(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) deploy.Rollout {
	if rec.Phase == deploy.RolloutComplete && s.Workload.Progressing.Reason == "NewReplicaSetAvailable" {
		if at := s.Workload.Progressing.Updated.Add(-s.Skew); at.Before(x.started) && !at.Before(rec.AppliedAt.Truncate(time.Second)) {
			rec.CompletedAt = at
			rec.Reason += "; it ended while the agent was not watching"
			return rec
		}
	}
	return rollout.Measured(ctx, x.cfg.Observer, rec, s)
}
