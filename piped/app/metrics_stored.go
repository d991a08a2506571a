package app

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricsPrefix+"_"+name, help, labels, nil)
}

var (
	applicationsDesc = describe("applications", "Enabled applications by sync status, `DEPLOYING` among them.", "sync_status")
	heldDesc         = describe("application_held_seconds", "How long a user has held an application at a commit, after a rollback by hand. Absent while it is not held.", "application_id", "app", "commit")
	approvalDesc     = describe("application_approval_wait_seconds", "How long a deployment of an application has waited for an approval, since its `WAIT_APPROVAL` began. Absent while none waits.", "application_id", "app")
	driftedDesc      = describe("drifted_objects", "Objects that differ from Git, by how: `missing`, `changed` or `extra`.", "drift")
	queueDesc        = describe("queue_length",
		"Open work, by queue: deployments that are `pending`, `planned`, `running` or `rolling_back`, `rollouts` that are followed, `commands`, registered `events`, and the `outbox` of notifications.", "queue")
	oldestDesc    = describe("queue_oldest_seconds", "Age of the oldest open work of a queue, from the trigger of a deployment on; 0 when there is none.", "queue")
	sizeDesc      = describe("store_size_bytes", "Size of the database.")
	writersDesc   = describe("store_waiting_writers", "Writes that wait for SQLite's only writer.")
	storeDownDesc = describe("store_up", "1 if the store answers, else 0.")
)

// storedFigures are read from the store when they are asked for; those of drift only
// if it has changed since.
type storedFigures struct {
	store   *store.Store
	changes *store.Watch
	now     func() time.Time

	mu      sync.Mutex
	drifted map[deploy.DriftKind]int // nil: to be read
}

// Describe implements prometheus.Collector.
func (f *storedFigures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{applicationsDesc, heldDesc, approvalDesc, driftedDesc, queueDesc, oldestDesc, sizeDesc, writersDesc, storeDownDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector, which is given no context. What cannot be
// read is left out.
func (f *storedFigures) Collect(out chan<- prometheus.Metric) {
	ctx, done := context.WithTimeout(context.Background(), scrapeTimeout)
	defer done()
	gauge(out, writersDesc, float64(f.store.WaitingWriters()))
	state := f.store.State(ctx)
	if state.Error != "" {
		gauge(out, storeDownDesc, 0)
		return
	}
	gauge(out, storeDownDesc, 1)
	gauge(out, sizeDesc, float64(state.SizeBytes))
	f.collectApplications(ctx, out)
	f.collectHolds(ctx, out)
	f.collectApprovals(ctx, out)
	f.collectDrift(ctx, out)
	f.collectQueues(ctx, out)
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func (f *storedFigures) collectApplications(ctx context.Context, out chan<- prometheus.Metric) {
	states, err := f.store.SyncStates(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(applicationsDesc, err)
		return
	}
	for _, s := range deploy.SyncStatuses() {
		gauge(out, applicationsDesc, float64(states[s]), string(s))
	}
}

func (f *storedFigures) collectHolds(ctx context.Context, out chan<- prometheus.Metric) {
	held, err := f.store.HeldApplications(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(heldDesc, err)
		return
	}
	for _, app := range held {
		gauge(out, heldDesc, secondsSince(app.Hold.Since, f.now()), app.ID, app.Name, app.Hold.Commit.Short())
	}
}

// collectApprovals relies on an application having one running deployment at most.
func (f *storedFigures) collectApprovals(ctx context.Context, out chan<- prometheus.Metric) {
	running, err := f.store.DeploymentsIn(ctx, deploy.Running)
	if err != nil {
		out <- prometheus.NewInvalidMetric(approvalDesc, err)
		return
	}
	for _, d := range running {
		if w := d.Wait(); w != nil && w.Approval {
			gauge(out, approvalDesc, secondsSince(w.Since, f.now()), d.ApplicationID, d.ApplicationName)
		}
	}
}

func (f *storedFigures) collectDrift(ctx context.Context, out chan<- prometheus.Metric) {
	drifted, err := f.countDrift(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(driftedDesc, err)
		return
	}
	for _, kind := range []deploy.DriftKind{deploy.DriftMissing, deploy.DriftChanged, deploy.DriftExtra} {
		gauge(out, driftedDesc, float64(drifted[kind]), strings.ToLower(string(kind)))
	}
}

func (f *storedFigures) collectQueues(ctx context.Context, out chan<- prometheus.Metric) {
	load, err := f.store.Load(ctx)
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
		gauge(out, queueDesc, float64(backlog.Count), name)
		gauge(out, oldestDesc, secondsSince(backlog.Since, f.now()), name)
	}
}

// secondsSince returns the age of what waits, 0 when nothing does.
func secondsSince(since, now time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since)).Seconds()
}

// countDrift returns how many objects differ from Git.
func (f *storedFigures) countDrift(ctx context.Context) (map[deploy.DriftKind]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.changes.C():
		f.changes.Take()
		f.drifted = nil
	default:
	}
	if f.drifted != nil {
		return f.drifted, nil
	}
	reports, _, err := f.store.ListDriftReports(ctx, store.DriftQuery{OpenOnly: true})
	if err != nil {
		return nil, err
	}
	f.drifted = map[deploy.DriftKind]int{}
	for _, r := range reports {
		for _, o := range r.Objects {
			f.drifted[o.Kind]++
		}
	}
	return f.drifted, nil
}
