package observe

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Intervals of ExternalRollouts.
const (
	scanInterval  = 30 * time.Second     // between evaluations of open records without an event
	minRetry      = 5 * time.Millisecond // after an error of a workload, twice as long after each further one
	maxRetry      = scanInterval
	retryInterval = 2 * time.Second // of the start
	minRead       = time.Second     // between two reads of the controllers' Lease
)

// atOnce is how many workloads are reconciled at the same time, each of them waiting for the cluster
// and the store.
const atOnce = 8

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
// With an Observer of all workloads, it covers every Deployment, StatefulSet and DaemonSet
// that the Observer's selection selects, also new ones. Revisions from before the cluster was
// first watched are not recorded. The store has the newest revision of each workload, so that
// a rollout that began while the agent was away is found, and no other.
//
// There is one record per revision, and it ends once. A rollout that ended while the agent
// was not watching is recorded with the result in the cluster. Scaling, resyncs and changes of
// annotations create no revision and therefore no record. A change of a workload without a new
// revision costs one read of the caches.
type ExternalRollouts struct {
	cfg     ExternalConfig
	started time.Time
	since   time.Time        // of the cluster's clock: when all workloads were first watched
	present map[string]int64 // where all workloads are watched, by UID: the newest revision when watching began

	queue  workqueue.TypedRateLimitingInterface[workloadKey]
	opened chan struct{} // receives when a record opens while none was open

	mu    sync.Mutex
	known map[workloadKey]*knownWorkload // see take
	away  time.Duration                  // of all outages: deadlines are postponed by them

	lease    sync.Mutex       // is held while the Lease is read
	presence rollout.Presence // availability of the cluster, checked while a record is open
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
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[workloadKey](minRetry, maxRetry))
	return &ExternalRollouts{cfg: c, queue: queue, opened: make(chan struct{}, 1), present: map[string]int64{}, known: map[workloadKey]*knownWorkload{}}
}

// Run records external rollouts until ctx ends, and returns nil. Unless all workloads are
// watched, it sends no request to the cluster before the store has a rollout on it.
func (x *ExternalRollouts) Run(ctx context.Context) error {
	defer x.queue.ShutDown()
	if err := x.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	x.repeat(ctx)
	return nil
}

// repeat reconciles what changes, and what is open, until ctx ends.
func (x *ExternalRollouts) repeat(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	defer x.queue.ShutDown()
	for range atOnce {
		workers.Go(func() { x.work(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-x.opened:
		}
		timer.Reset(x.enqueueOpen(ctx))
	}
}

// work reconciles the workloads of the queue until that is shut down. None of them is reconciled twice
// at the same time.
func (x *ExternalRollouts) work(ctx context.Context) {
	for {
		key, closed := x.queue.Get()
		if closed || ctx.Err() != nil { // a queue that was shut down still returns its keys
			return
		}
		if err := x.reconcile(ctx, key); err != nil && !ownership.Over(ctx, err) {
			x.cfg.Logger.WarnContext(ctx, "cannot record an external rollout; retrying", "workload", key.ref().String(), "error", err)
			x.queue.AddRateLimited(key)
		} else {
			x.queue.Forget(key)
		}
		x.queue.Done(key)
	}
}

// begin calls prepare, and retries while the store is unavailable.
func (x *ExternalRollouts) begin(ctx context.Context) error {
	prepare := x.prepare
	if x.all() {
		prepare = x.prepareAll
	}
	for {
		err := prepare(ctx)
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

// all reports whether all workloads are watched.
func (x *ExternalRollouts) all() bool { return x.cfg.Observer.All() != nil }

// prepare waits for the store's first rollout on the cluster, resumes the open records and
// registers the handlers.
func (x *ExternalRollouts) prepare(ctx context.Context) error {
	if err := x.awaitFirst(ctx); err != nil {
		return err
	}
	if err := x.resume(ctx); err != nil {
		return err
	}
	deployments, err := x.cfg.Observer.Watch(rollout.KindDeployment)
	if err != nil {
		return err
	}
	sets, err := x.cfg.Observer.WatchReplicaSets()
	if err != nil {
		return err
	}
	if err := errors.Join(x.handle(ctx, rollout.KindDeployment, deployments), x.handleRevisions(ctx, sets)); err != nil {
		return err
	}
	return errors.Join(deployments.Filled(ctx), sets.Filled(ctx))
}

// resume reads the open records.
func (x *ExternalRollouts) resume(ctx context.Context) error {
	open, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: x.cluster(), External: true, OpenOnly: true})
	if err != nil {
		return err
	}
	if x.started.IsZero() {
		x.started = x.cfg.Now()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, rec := range open {
		rec.LastProgress = x.started // the store does not have the progress
		x.known[keyOf(rec.Workload)] = &knownWorkload{uid: rec.UID, open: &rec}
	}
	return x.resumeFailed(ctx)
}

// handle queues the workloads of a kind that change until ctx ends.
func (x *ExternalRollouts) handle(ctx context.Context, kind string, w *watch.Scope) error {
	return w.HandleDuring(ctx, "external", func(_ context.Context, key types.NamespacedName) error {
		x.queue.Add(workloadKey{kind, key})
		return nil
	})
}

// handleRevisions queues the workloads of revisions that change until ctx ends.
func (x *ExternalRollouts) handleRevisions(ctx context.Context, w *watch.Scope) error {
	return w.HandleDuring(ctx, "external", func(_ context.Context, key types.NamespacedName) error {
		// The deletion of a revision changes nothing, or the status of its workload.
		r, ok := w.Get(key).(*workloads.Revision)
		if !ok {
			return nil
		}
		kind, name := r.Owner()
		of := workloadKey{kind, types.NamespacedName{Namespace: key.Namespace, Name: name}}
		if workloads.Resource(kind).Resource != "" && !x.settled(r, of) {
			x.queue.Add(of)
		}
		return nil
	})
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

// enqueueOpen queues every workload with an open record or an undecided change, and returns the delay
// until the next call. It is needed without an event because a deadline can end a rollout, and
// the event of a workload's deletion may be missed.
func (x *ExternalRollouts) enqueueOpen(ctx context.Context) (next time.Duration) {
	x.mu.Lock()
	for key, known := range x.known {
		if known.open != nil || known.undecided {
			x.queue.Add(key)
		}
	}
	open := x.anyOpen()
	x.mu.Unlock()
	if !open {
		return scanInterval
	}
	// The Lease has to be read while a record is open: a longer pause counts as an outage.
	presence := x.readLease(ctx)
	return min(scanInterval, max(presence.Next().Sub(x.cfg.Now()), minRead))
}

// reconcile records new revisions of one workload and updates its open record. It is
// idempotent.
func (x *ExternalRollouts) reconcile(ctx context.Context, key workloadKey) error {
	known, err := x.update(ctx, key, x.take(key))
	x.put(key, known)
	return err
}

// update returns what is known of a workload then, nil if it is gone, also with an error.
func (x *ExternalRollouts) update(ctx context.Context, key workloadKey, known *knownWorkload) (*knownWorkload, error) {
	app := deploy.Rollout{Cluster: x.cluster(), Workload: key.ref()}
	s, err := x.cfg.Observer.Cached(ctx, app)
	if err == nil {
		s, err = x.cfg.Observer.WithRevisions(ctx, app, s)
	}
	if err != nil {
		return known, err
	}
	if known != nil && known.open != nil {
		if err := x.follow(ctx, known, s); err != nil {
			return known, err
		}
	}
	if s.Workload == nil {
		return x.gone(ctx, key, known)
	}
	if known != nil && known.failed != nil {
		if err := x.recover(ctx, known, s); err != nil {
			return known, err
		}
	}
	if known == nil || known.uid != s.Workload.UID && known.open == nil {
		met, err := x.met(ctx, key, s)
		if err != nil {
			return known, err
		}
		known = met
	}
	if known.paused && !s.Workload.Paused {
		known.resumed = x.cfg.Now()
	}
	known.paused = s.Workload.Paused
	if known.uid != s.Workload.UID || newestRevision(s) <= known.revision {
		return known, nil
	}
	return known, x.record(ctx, known, app, s)
}

// gone forgets a workload that was deleted, unless its record is open.
func (x *ExternalRollouts) gone(ctx context.Context, key workloadKey, known *knownWorkload) (*knownWorkload, error) {
	if known == nil || known.open != nil {
		return known, nil
	}
	if x.all() {
		if err := x.cfg.Store.ForgetWorkload(ctx, x.cluster(), key.ref().Key()); err != nil {
			return known, err
		}
	}
	return nil, nil
}

// met begins to know a workload, or one that was created again; nil with an error.
func (x *ExternalRollouts) met(ctx context.Context, key workloadKey, s rollout.Snapshot) (*knownWorkload, error) {
	known := &knownWorkload{uid: s.Workload.UID}
	if x.all() && s.Workload.Created.Before(x.since.Truncate(time.Second)) {
		// It was in no watched namespace when the others were first seen.
		known.revision = newestRevision(s)
		if err := x.remember(ctx, key, known, s); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// newestRevision returns the highest revision of the snapshot.
func newestRevision(s rollout.Snapshot) (highest int64) {
	for _, r := range s.Revisions {
		highest = max(highest, r.Number)
	}
	return highest
}

// record stores records of new revisions. It reads the cluster again before it stores any,
// because the caches may be stale.
func (x *ExternalRollouts) record(ctx context.Context, known *knownWorkload, app deploy.Rollout, s rollout.Snapshot) error {
	found, decided, err := x.unrecorded(ctx, known, app, s)
	if err == nil && len(found) > 0 {
		if s, err = x.confirm(ctx, app); err == nil {
			found, decided, err = x.unrecorded(ctx, known, app, s)
		}
	}
	if err != nil {
		return err
	}
	for _, rec := range found {
		if err := x.store(ctx, known, x.late(rec)); err != nil {
			return err
		}
	}
	known.undecided = !decided
	if decided && s.Workload != nil {
		known.revision = newestRevision(s)
		if err := x.remember(ctx, keyOf(app.Workload), known, s); err != nil {
			known.undecided = true
			return err
		}
	}
	if known.open != nil {
		return x.follow(ctx, known, s)
	}
	return nil
}

func (x *ExternalRollouts) confirm(ctx context.Context, app deploy.Rollout) (rollout.Snapshot, error) {
	if x.all() {
		return x.cfg.Observer.ConfirmRevisions(ctx, app)
	}
	return x.cfg.Observer.Confirm(ctx, app)
}

// late returns rec, marked if it began before the agent started to watch. Times of the
// cluster have a resolution of one second.
func (x *ExternalRollouts) late(rec deploy.Rollout) deploy.Rollout {
	present := rec.Revision <= x.present[rec.UID]
	if present || !rec.AppliedAt.IsZero() && rec.AppliedAt.Truncate(time.Second).Add(time.Second).Before(x.started) {
		rec.FoundLate = true
		rec.Reason += "; it began while the agent was not watching"
	}
	return rec
}

// store stores a new record. An open record of an earlier revision ends before it.
func (x *ExternalRollouts) store(ctx context.Context, known *knownWorkload, rec deploy.Rollout) error {
	if !rec.Phase.Terminal() && known.open != nil && known.open.ID != rec.ID {
		old := rollout.GivenUp(*known.open, deploy.RolloutSuperseded, x.cfg.Now(), "%s: revision %d followed before the rollout ended", rec.Workload.Name, rec.Revision)
		old.SupersededBy = rec.ChangedBy
		if _, err := x.cfg.Redact.save(ctx, x.cfg.Store, old); err != nil && !deploy.IsKind(err, deploy.Conflict) {
			return err
		}
		known.open = nil
	}
	saved, err := x.cfg.Redact.save(ctx, x.cfg.Store, rec)
	if deploy.IsKind(err, deploy.Conflict) {
		return nil // another agent with this store recorded it first
	}
	if err != nil {
		return err
	}
	known.failed = nil
	x.cfg.Logger.InfoContext(ctx, "external rollout", "workload", rec.Workload.String(), "revision", rec.Revision, "phase", rec.Phase, "reason", rec.Reason)
	if !saved.Phase.Terminal() {
		known.open = &saved
		x.opens(*known)
	}
	return nil
}

// unrecorded returns records for the revisions in s that are not in the store; decided
// reports whether the result is final. It reads the store after the cluster: a stage stores
// its record before it applies, so a revision of a stage is always found.
func (x *ExternalRollouts) unrecorded(ctx context.Context, known *knownWorkload, app deploy.Rollout, s rollout.Snapshot) (found []deploy.Rollout, decided bool, err error) {
	recorded, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: app.Cluster, Workload: app.Workload, Limit: recordsRead})
	if err != nil {
		return nil, false, err
	}
	var base rollout.Baseline
	cached := x.cfg.Observer.Get(app.Workload.Kind, keyOf(app.Workload).NamespacedName)
	if cached != nil {
		app.ApplicationID = cached.Application
	}
	if x.all() {
		base = rollout.Baseline{Known: true, Revision: known.revision, Images: known.images, Resumed: known.resumed}
		app.ApplicationID = ownerOf(app.ApplicationID, recorded)
	}
	found, decided = rollout.External(app, s, recorded, base, x.cfg.FieldManager, x.cfg.Now())
	if x.all() && (cached == nil || !cached.Selected) && app.ApplicationID == "" {
		found = nil
	}
	return found, decided, nil
}

// ownerOf returns the application of a label if a record shows that the agent applied the
// workload for it, otherwise "": anyone who may write a workload can label it.
func ownerOf(label string, recorded []deploy.Rollout) string {
	if label != "" && slices.ContainsFunc(recorded, func(rec deploy.Rollout) bool { return rec.ApplicationID == label }) {
		return label
	}
	return ""
}

// follow evaluates the open record by s and stores a change of its phase.
func (x *ExternalRollouts) follow(ctx context.Context, known *knownWorkload, s rollout.Snapshot) error {
	policy := x.policy(ctx, known)
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
		if failed(saved) {
			known.failed = &saved
		}
		x.cfg.Logger.InfoContext(ctx, "external rollout has ended", "workload", rec.Workload.String(), "revision", rec.Revision, "phase", rec.Phase, "reason", rec.Reason)
	}
	return nil
}

// ended completes an ended record. If the rollout ended before the agent started to watch,
// the completion time is that of the cluster. Otherwise the breakdown of the duration is
// measured by the pods.
func (x *ExternalRollouts) ended(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) deploy.Rollout {
	if rec.Phase == deploy.RolloutComplete {
		if at := x.completed(ctx, rec, s); !at.IsZero() && at.Add(time.Second).Before(x.started) && !at.Before(rec.AppliedAt.Truncate(time.Second)) {
			rec.CompletedAt = at
			rec.Reason += "; it ended while the agent was not watching"
			return rec
		}
	}
	return rollout.Measured(ctx, x.cfg.Observer, rec, s)
}

// completed returns when a complete rollout had ended, the zero time if the cluster does not
// show it. A Deployment has a condition for it; of others it is when the last pod became ready.
func (x *ExternalRollouts) completed(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) time.Time {
	if s.Workload.Kind == rollout.KindDeployment {
		if s.Workload.Progressing.Reason != "NewReplicaSetAvailable" {
			return time.Time{}
		}
		return s.Workload.Progressing.Updated.Add(-s.Skew)
	}
	if !rec.AppliedAt.Before(x.started) {
		return time.Time{}
	}
	pods, err := x.cfg.Observer.NewPods(ctx, rec, s)
	if err != nil {
		return time.Time{}
	}
	if at := rollout.LastReady(pods); !at.IsZero() {
		return at.Add(-s.Skew)
	}
	return time.Time{}
}
