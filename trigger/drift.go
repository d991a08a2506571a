package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// selfHeal evaluates the drifted applications whose time in w.drifted has come. In a pass,
// head is the commit of the pass, and selfHeal creates the deployments that are due.
// Outside of a pass head is nil: then selfHeal only determines when a pass is due.
//
// next is the earliest time of the next evaluation, zero if none is scheduled. With a nil
// head it may be in the past.
func (w *watcher) selfHeal(ctx context.Context, head *deploy.Commit) (next time.Time, err error) {
	now := w.Now()
	var ids []string
	for id, at := range w.drifted {
		if !at.After(now) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 && w.catalog != nil {
		err = w.reviewAll(ctx, ids, head)
	}
	for _, at := range w.drifted {
		if past := !at.After(now); at.IsZero() || past && head != nil {
			continue
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next, err
}

// reviewAll evaluates the drifted applications with these IDs, creates the deployments that
// are due, and schedules the next evaluations in w.drifted. It removes an application that
// must not be healed in its present state: a change of the application adds it again.
func (w *watcher) reviewAll(ctx context.Context, ids []string, head *deploy.Commit) error {
	apps, err := w.Store.DriftedApplications(ctx, ids...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		delete(w.drifted, id)
	}
	var rs []request
	var errs []error
	for _, app := range apps {
		due, r, err := w.reviewDrift(ctx, app, head)
		if err != nil {
			errs = append(errs, fmt.Errorf("self-heal application %s: %w", app.Name, err))
		}
		if err != nil || !due.IsZero() {
			w.drifted[app.ID] = due
		}
		if r != nil {
			rs = append(rs, *r)
		}
	}
	for i, err := range w.create(ctx, rs) {
		if err != nil {
			w.drifted[rs[i].Deployment.ApplicationID] = time.Time{}
		}
		if err != nil && !deploy.IsKind(err, deploy.Conflict) { // a conflict: its state changed, so it is evaluated again
			errs = append(errs, fmt.Errorf("self-heal application %s: %w", rs[i].Deployment.ApplicationName, err))
		}
	}
	return errors.Join(errs...)
}

// reviewDrift evaluates one drifted application. It returns the deployment r that heals it,
// or the time due from which it may be healed, which may be in the past. It returns neither
// if the application must not be healed in its present state.
func (w *watcher) reviewDrift(ctx context.Context, app deploy.Application, head *deploy.Commit) (due time.Time, r *request, err error) {
	e, ok := w.catalog.entries[app.ID]
	if !ok || app.Disabled {
		return due, nil, nil
	}
	provider, problem := e.problem(w.Trigger, app)
	if problem != nil {
		return due, nil, nil
	}
	if healingStopped(app) {
		if app, err = w.resume(ctx, app, e.candidate.Config.Trigger.OnCommit); err != nil || healingStopped(app) {
			return due, nil, err
		}
	}
	last, err := w.lastTriggered(ctx, app)
	if err != nil {
		return due, nil, err
	}
	due, ok = healDue(app, e.candidate.Config.Trigger.OnOutOfSync, last, w.Now())
	if !ok || head == nil || due.After(w.Now()) || app.EvaluatedCommit != head.Hash {
		return due, nil, nil // the commits since the last evaluated one are evaluated first
	}
	r, err = w.heal(ctx, app, e, provider, *head)
	return time.Time{}, r, err
}

// desired returns the commit that self-healing deploys, with the application's
// configuration and provider at that commit: the head, or the commit at which the
// application is held. problem explains why the latter cannot be deployed.
func (w *watcher) desired(ctx context.Context, app deploy.Application, e entry, provider string, head deploy.Commit) (commit deploy.Commit, _ entry, _ string, problem string, err error) {
	if app.Hold == nil {
		return head, e, provider, "", nil
	}
	commit, e, problem, err = w.entryFor(ctx, app, app.Hold.Commit.Hash)
	if problem != "" || err != nil {
		return commit, e, "", problem, err
	}
	provider, unusable := e.problem(w.Trigger, app)
	if unusable != nil {
		problem = unusable.Error()
	}
	return commit, e, provider, problem, nil
}

// syncStateLag is how long after the end of a deployment the application's sync status may
// still report drift that the deployment has fixed.
const syncStateLag = 5 * time.Second

// healDue returns the time from which an application may be healed, which may be in the
// past. ok is false if it must not be healed at all. The conditions are PipeCD's: the
// application is out of sync, the trigger is enabled, no deployment is active, and the last
// one ended at least minWindow ago, or syncStateLag if that is longer. Drift that healing
// cannot fix is ignored (deploy.SyncState.LeftOver). last is the deployment triggered
// last, nil if there is none.
func healDue(app deploy.Application, on config.OnOutOfSync, last *deploy.Deployment, now time.Time) (due time.Time, ok bool) {
	switch {
	case app.Sync.Status != deploy.OutOfSync, app.Sync.LeftOver, on.Disabled, app.Deploying:
		return time.Time{}, false
	case last == nil:
		return now, true
	case !last.Status.Completed():
		return time.Time{}, false
	}
	return last.CompletedAt.Add(max(on.MinWindow, syncStateLag)), true
}

// lastTriggered returns the deployment of the application that was triggered last, nil if
// there is none or the store no longer contains it.
func (w *watcher) lastTriggered(ctx context.Context, app deploy.Application) (*deploy.Deployment, error) {
	if app.LastTriggered == nil {
		return nil, nil
	}
	d, err := w.Store.Deployment(ctx, app.LastTriggered.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil, nil
	}
	return &d, err
}

// heal returns the deployment that heals the application. If the loop guard forbids that,
// it stops self-healing and returns nil.
func (w *watcher) heal(ctx context.Context, app deploy.Application, e entry, provider string, head deploy.Commit) (*request, error) {
	on := e.candidate.Config.Trigger.OnCommit
	commit, e, provider, problem, err := w.desired(ctx, app, e, provider, head)
	if err != nil {
		return nil, err
	}
	heals, err := w.heals(ctx, app, on, commit)
	if err != nil {
		return nil, err
	}
	if heals >= maxHeals {
		return nil, w.stopHealing(ctx, app, commit)
	}
	if problem != "" {
		return nil, deploy.Errorf(deploy.Invalid, "the application is held at commit %s, which cannot be deployed: %s; sync the application to another commit",
			app.Hold.Commit.Short(), problem)
	}
	r, err := w.newRequest(ctx, app, e, provider, deploy.Trigger{
		Kind: deploy.OnOutOfSync, Commit: commit, Strategy: deploy.StrategyAuto,
		StrategySummary: "Self-heal because the live state differs from Git: " + app.Sync.ShortReason,
	})
	if err != nil {
		return nil, err
	}
	held := app.HeldAt()
	r.Held, r.Evaluated = &held, head.Hash
	r.Base, r.Supersede, r.reason = &head.Hash, r.queue != config.QueueAll, r.Deployment.Trigger.StrategySummary
	return &r, nil
}
