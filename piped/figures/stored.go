package figures

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/metric"
	"github.com/c785c783/piped/piped/store"
)

var (
	applicationsDesc = metric.Desc("applications", "Enabled applications by sync status, `DEPLOYING` among them.", "sync_status")
	heldDesc         = metric.Desc("application_held_seconds", "How long a user has held an application at a commit, after a rollback by hand. Absent while it is not held.", "application_id", "app", "commit")
	approvalDesc     = metric.Desc("application_approval_wait_seconds", "How long a deployment of an application has waited for an approval, since its `WAIT_APPROVAL` began. Absent while none waits.", "application_id", "app")
	driftedDesc      = metric.Desc("drifted_objects", "Objects that differ from Git, by how: `missing`, `changed` or `extra`.", "drift")
	queueDesc        = metric.Desc("queue_length",
		"Open work, by queue: deployments that are `pending`, `planned`, `running` or `rolling_back`, `rollouts` that are followed, `commands`, registered `events`, and the `outbox` of notifications.", "queue")
	oldestDesc  = metric.Desc("queue_oldest_seconds", "Age of the oldest open work of a queue, from the trigger of a deployment on; 0 when there is none.", "queue")
	sizeDesc    = metric.Desc("store_size_bytes", "Size of the database.")
	writersDesc = metric.Desc("store_waiting_writers", "Writes that wait for SQLite's only writer.")
	standbyDesc = metric.Desc("store_standbys", "Replicas of the agent that stand by; 0 on SQLite.")
	storeUpDesc = metric.Desc("store_up", "1 if the store answers, else 0.")

	partitionsDesc = metric.Desc("partitions_held", "Partitions of the work, of 64, that a replica holds, by its host and process. An agent that does not share its work holds all.", "replica")
	handoversDesc  = metric.Desc("partition_handovers_total", "Partitions that any replica has taken, since the store was created.")
	fencedDesc     = metric.Desc("fenced_writes_total", "Writes to the store and requests to clusters of any replica that were refused because another replica had the work by then, since the store was created.")
)

// Stored collects gauges that are read from the store during a scrape. Drift is read only
// if it has changed since the last scrape.
type Stored struct {
	store   *store.Store
	changes *store.Watch
	now     func() time.Time

	mu      sync.Mutex
	drifted map[deploy.DriftKind]int // nil after a change
}

// NewStored returns the collector for a store. The caller closes it.
func NewStored(st *store.Store, now func() time.Time) *Stored {
	return &Stored{store: st, changes: st.Watch(deploy.TopicDrift), now: now}
}

// Close ends the watch of the store. It returns nil.
func (s *Stored) Close() error {
	s.changes.Close()
	return nil
}

// Describe implements prometheus.Collector.
func (s *Stored) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{applicationsDesc, heldDesc, approvalDesc, driftedDesc, queueDesc, oldestDesc, sizeDesc, writersDesc, standbyDesc, storeUpDesc, partitionsDesc, handoversDesc, fencedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Values that cannot be read are omitted.
func (s *Stored) Collect(out chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(context.Background(), metric.ScrapeTimeout)
	defer done()
	metric.Gauge(out, writersDesc, float64(s.store.WaitingWriters()))
	state := s.store.State(ctx)
	if state.Error != "" {
		metric.Gauge(out, storeUpDesc, 0)
		return
	}
	metric.Gauge(out, storeUpDesc, 1)
	metric.Gauge(out, sizeDesc, float64(state.SizeBytes))
	metric.Gauge(out, standbyDesc, float64(len(state.Standbys)))
	collectReplicas(out, state)
	s.collectApplications(ctx, out)
	s.collectHolds(ctx, out)
	s.collectApprovals(ctx, out)
	s.collectDrift(ctx, out)
	s.collectQueues(ctx, out)
}

// collectReplicas sends which replicas share the work. Metrics of a replica that stands by cannot be
// scraped, so that the store counts for all.
func collectReplicas(out chan<- prometheus.Metric, state deploy.StoreState) {
	metric.Counter(out, handoversDesc, float64(state.Handovers))
	metric.Counter(out, fencedDesc, float64(state.Fenced))
	for _, r := range state.Replicas {
		metric.Gauge(out, partitionsDesc, float64(r.Partitions), r.Host)
	}
	if !state.Shared {
		metric.Gauge(out, partitionsDesc, deploy.Partitions, store.Process())
	}
}

// collectApplications sends the number of applications by sync status. As in the others, an
// error of the store becomes an invalid metric: the scrape logs it and goes on.
func (s *Stored) collectApplications(ctx context.Context, out chan<- prometheus.Metric) {
	states, err := s.store.SyncStates(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(applicationsDesc, err)
		return
	}
	for _, status := range deploy.SyncStatuses() {
		metric.Gauge(out, applicationsDesc, float64(states[status]), string(status))
	}
}

func (s *Stored) collectHolds(ctx context.Context, out chan<- prometheus.Metric) {
	held, err := s.store.HeldApplications(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(heldDesc, err)
		return
	}
	for _, app := range held {
		metric.Gauge(out, heldDesc, metric.Age(app.Hold.Since, s.now()), app.ID, app.Name, app.Hold.Commit.Short())
	}
}

// collectApprovals relies on an application having at most one running deployment.
func (s *Stored) collectApprovals(ctx context.Context, out chan<- prometheus.Metric) {
	running, err := s.store.DeploymentsAtStage(ctx, deploy.StageWaitApproval)
	if err != nil {
		out <- prometheus.NewInvalidMetric(approvalDesc, err)
		return
	}
	for _, d := range running {
		if w := d.Wait(); w != nil && w.Approval {
			metric.Gauge(out, approvalDesc, metric.Age(w.Since, s.now()), d.ApplicationID, d.ApplicationName)
		}
	}
}

func (s *Stored) collectDrift(ctx context.Context, out chan<- prometheus.Metric) {
	drifted, err := s.countDrift(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(driftedDesc, err)
		return
	}
	for _, kind := range []deploy.DriftKind{deploy.DriftMissing, deploy.DriftChanged, deploy.DriftExtra} {
		metric.Gauge(out, driftedDesc, float64(drifted[kind]), strings.ToLower(string(kind)))
	}
}

func (s *Stored) collectQueues(ctx context.Context, out chan<- prometheus.Metric) {
	load, err := s.store.Load(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(queueDesc, err)
		return
	}
	queues := map[string]store.Backlog{"commands": load.Commands, "events": load.Events, "outbox": load.Outbox, "rollouts": load.Rollouts}
	for _, status := range deploy.Statuses() {
		if !status.Completed() {
			queues[strings.ToLower(string(status))] = load.Deployments[status]
		}
	}
	for name, backlog := range queues {
		metric.Gauge(out, queueDesc, float64(backlog.Count), name)
		metric.Gauge(out, oldestDesc, metric.Age(backlog.Since, s.now()), name)
	}
}

// countDrift returns how many objects of all applications differ from Git, from the last stored
// reports. Kinds without objects may be missing.
func (s *Stored) countDrift(ctx context.Context) (map[deploy.DriftKind]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.changes.C():
		s.changes.Take()
		s.drifted = nil
	default:
	}
	if s.drifted != nil {
		return s.drifted, nil
	}
	reports, _, err := s.store.ListDriftReports(ctx, store.DriftQuery{OpenOnly: true})
	if err != nil {
		return nil, err
	}
	s.drifted = map[deploy.DriftKind]int{}
	for _, r := range reports {
		for _, o := range r.Objects {
			s.drifted[o.Kind]++
		}
	}
	return s.drifted, nil
}
