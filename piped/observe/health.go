package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/health"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

const (
	healthInterval = 30 * time.Second       // between evaluations of applications that are not healthy
	healthDebounce = 100 * time.Millisecond // events within this time cause one evaluation
)

// HealthConfig is what HealthEvents needs.
type HealthConfig struct {
	Observer *workloads.Observer
	Store    *store.Store
	Redact   Redact // for the reasons of events
	Logger   *slog.Logger
	Now      func() time.Time
}

// HealthEvents publishes when applications of one cluster become degraded, and when they
// are healthy again: the event APPLICATION_DEGRADED or APPLICATION_HEALTHY, once for each
// change (health.Pulse decides when). The health of an application is the worst of its
// live Deployments, StatefulSets and DaemonSets in the caches of Observer; missing objects
// are reported by drift detection. An application without workloads is healthy. The last
// published health is stored, so that a restart repeats no event.
//
// It sends no request to the cluster, and holds in memory only the applications that are
// not healthy.
type HealthEvents struct {
	cfg HealthConfig

	pulses map[string]*health.Pulse // by application; only Run uses it
	wake   chan struct{}

	mu      sync.Mutex
	dirty   map[string]bool // applications to evaluate
	tracked map[string]bool // applications that have a pulse
}

// NewHealthEvents returns the component of one cluster. Call it before the observer's
// controller runs.
func NewHealthEvents(c HealthConfig) *HealthEvents {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	v := &HealthEvents{
		cfg: c, pulses: map[string]*health.Pulse{}, wake: make(chan struct{}, 1), dirty: map[string]bool{}, tracked: map[string]bool{},
	}
	c.Observer.OnChange(v.onWorkloadChange)
	return v
}

// Run publishes changes until ctx ends. It retries while the store does not answer. It may run again
// later: another replica may have published since.
func (v *HealthEvents) Run(ctx context.Context) {
	v.reset()
	ends := v.cfg.Store.Watch(deploy.TopicDeployment)
	defer ends.Close()
	begun := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var next time.Duration
		err := v.begin(ctx, &begun)
		if err == nil {
			next, err = v.evaluateAll(ctx)
		}
		if err != nil && !ownership.Over(ctx, err) {
			v.cfg.Logger.WarnContext(ctx, "cannot evaluate the health of applications; retrying", "error", err)
			next = retryInterval
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-v.wake:
			timer.Reset(healthDebounce)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		case <-ends.C():
			v.onDeploymentEnd(ends.Take())
		case <-timer.C:
		}
	}
}

// begin tracks the applications whose last published health is degraded, and starts to watch
// the kinds of workload in the cluster's inventory. It does nothing once *begun is set.
func (v *HealthEvents) begin(ctx context.Context, begun *bool) error {
	if *begun {
		return nil
	}
	degraded, err := v.cfg.Store.DegradedApplications(ctx)
	if err != nil {
		return err
	}
	kinds, err := v.cfg.Store.InventoryKinds(ctx, v.cfg.Observer.Cluster().Name(), rollout.KindDeployment, rollout.KindStatefulSet, rollout.KindDaemonSet)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if _, err := v.cfg.Observer.Watch(kind); err != nil {
			return err
		}
	}
	for _, id := range degraded {
		v.track(id, true)
	}
	v.cfg.Observer.Each(v.onWorkloadChange) // those that have changed before
	*begun = true
	return nil
}

// reset forgets what it knew of applications.
func (v *HealthEvents) reset() {
	v.pulses = map[string]*health.Pulse{}
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.dirty)
	clear(v.tracked)
}

// track returns the pulse of an application. It creates one if there is none; degraded is its
// last published health.
func (v *HealthEvents) track(id string, degraded bool) *health.Pulse {
	if v.pulses[id] == nil {
		v.pulses[id] = health.NewPulse(degraded)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tracked[id] = true
	return v.pulses[id]
}

// untrack drops the pulse of an application.
func (v *HealthEvents) untrack(id string) {
	delete(v.pulses, id)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.tracked, id)
}

// onWorkloadChange marks the application of a changed workload for evaluation. It ignores
// healthy and suspended workloads of applications that are not tracked.
func (v *HealthEvents) onWorkloadChange(application string, w rollout.Workload) {
	h, _ := health.Workload(w)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.tracked[application] && (h == deploy.Healthy || h == deploy.HealthSuspended) {
		return
	}
	v.dirty[application] = true
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// onDeploymentEnd records the end of deployments in the pulses of their applications. It
// ignores applications without workloads in this cluster.
func (v *HealthEvents) onDeploymentEnd(changes []deploy.Change) {
	for _, c := range changes {
		if !c.Status.Completed() || len(v.cfg.Observer.Of(c.ApplicationID)) == 0 {
			continue
		}
		v.track(c.ApplicationID, false).Ended(v.cfg.Now())
	}
}

// evaluateAll evaluates the changed and the tracked applications, and returns the delay until
// the next evaluation.
func (v *HealthEvents) evaluateAll(ctx context.Context) (next time.Duration, err error) {
	v.mu.Lock()
	dirty := slices.Collect(maps.Keys(v.dirty))
	clear(v.dirty)
	v.mu.Unlock()
	for _, id := range dirty {
		v.track(id, false)
	}
	next = healthInterval
	if v.cfg.Observer.Stale() {
		return next, nil // the caches are out of date
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(v.pulses)) {
		soon, err := v.evaluate(ctx, id)
		if !soon.IsZero() {
			next = min(next, max(soon.Sub(v.cfg.Now()), 10*time.Millisecond))
		}
		errs = append(errs, err)
	}
	return next, errors.Join(errs...)
}

// evaluate evaluates one application, publishes a change of its health, and returns the time
// of its next evaluation; zero means after healthInterval.
func (v *HealthEvents) evaluate(ctx context.Context, id string) (next time.Time, err error) {
	live, p, now := v.cfg.Observer.Of(id), v.pulses[id], v.cfg.Now()
	if len(live) == 0 && !p.Degraded() {
		v.untrack(id)
		return time.Time{}, nil
	}
	worst := worstOf(live)
	p.See(worst.health, now)
	changed, next := p.Verdict(now)
	switch {
	case changed != "":
		return v.report(ctx, id, p, changed, worst)
	case p.Quiet():
		v.untrack(id)
	}
	return next, nil
}

// report stores a change of an application's health together with its event. It does
// nothing while the application is being deployed or is not managed here.
func (v *HealthEvents) report(ctx context.Context, id string, p *health.Pulse, h deploy.Health, worst finding) (next time.Time, err error) {
	now := v.cfg.Now()
	app, err := v.cfg.Store.Application(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		v.untrack(id) // it belongs to another agent
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	case app.Deploying || app.Deleted && worst.of > 0 || app.Disabled || app.Provider != v.cfg.Observer.Cluster().Name():
		p.Deploys(now)
		return time.Time{}, nil
	}
	reason, err := v.cfg.Redact(ctx, app, worst.reason(h, p.For(now)))
	if err != nil {
		return time.Time{}, err
	}
	changed, err := v.cfg.Store.SetDegraded(ctx, id, h == deploy.HealthDegraded, reason, healthEvent(app, h, reason, now))
	if deploy.IsKind(err, deploy.Conflict) { // a deployment began meanwhile
		p.Deploys(now)
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	p.Notified(h, now)
	if changed {
		v.cfg.Logger.InfoContext(ctx, "the health of an application has changed", "app", app.Name, "health", h, "reason", reason)
	}
	_, next = p.Verdict(now)
	return next, nil
}

// healthEvent returns the event that an application has become degraded or healthy.
func healthEvent(app deploy.Application, h deploy.Health, reason string, now time.Time) deploy.Event {
	kind, payload := deploy.EventHealthy, deploy.EventPayload{Application: app.Name, To: string(h), Reason: reason}
	if h == deploy.HealthDegraded {
		kind = deploy.EventDegraded
	}
	if app.LastSuccessful != nil {
		payload.Commit = &app.LastSuccessful.Trigger.Commit
	}
	return deploy.Event{
		Key: fmt.Sprintf("%s/%s/%d", app.ID, kind, now.UnixMilli()), Type: kind, ApplicationID: app.ID, Payload: payload.JSON(), At: now,
	}
}

// finding is the worst health among workloads.
type finding struct {
	health deploy.Health
	text   string // the first workload with that health, and the reason
	others int    // number of further workloads with that health
	of     int    // number of all workloads
}

// worstOf returns the worst health of workloads; healthy if there are none.
func worstOf(live []*workloads.Object) finding {
	f := finding{of: len(live)}
	if f.of == 0 {
		f.health = deploy.Healthy
	}
	for _, w := range live {
		h, why := health.Workload(w.Workload)
		switch {
		case f.health == "" || h.WorseThan(f.health):
			f.health, f.others = h, 0
			f.text = fmt.Sprintf("%s %s: %s", w.Workload.Kind, types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, why)
		case h == f.health:
			f.others++
		}
	}
	return f
}

// reason explains the reported health h to a user. The application has been healthy, or
// not, for the time lasted.
func (f finding) reason(h deploy.Health, lasted time.Duration) string {
	switch {
	case h == deploy.Healthy && f.of == 0:
		return "it has no workloads any more"
	case h == deploy.Healthy && f.of == 1:
		return "its workload is healthy again"
	case h == deploy.Healthy:
		return fmt.Sprintf("all its %d workloads are healthy again", f.of)
	}
	text := f.text
	if f.health != deploy.HealthDegraded {
		text += fmt.Sprintf("; the application has not been healthy for %s", lasted.Round(time.Second))
	}
	switch f.others {
	case 0:
	case 1:
		text += "; another workload is as bad"
	default:
		text += fmt.Sprintf("; %d other workloads are as bad", f.others)
	}
	return text
}
