package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Limits of LateCompletions.
const (
	lateInterval = 15 * time.Second // between checks of failed rollouts
	lateFor      = 24 * time.Hour   // how long a rollout is checked after it failed
	lateRead     = 200              // number of newest records that are read
)

// LateConfig is what LateCompletions needs.
type LateConfig struct {
	Observer *workloads.Observer
	Store    *store.Store
	Logger   *slog.Logger
	Now      func() time.Time
	Interval time.Duration // 15 s by default
}

// LateCompletions adds a note to failed deployments of one cluster whose rollout completed
// later, for example because an image was pushed too late or a node recovered. It appends the
// note to the deployment's reason and to the log of the stage. The rollout's record and the
// deployment's status do not change.
type LateCompletions struct {
	cfg LateConfig
}

// NewLateCompletions returns the component of one cluster.
func NewLateCompletions(c LateConfig) *LateCompletions {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Interval == 0 {
		c.Interval = lateInterval
	}
	return &LateCompletions{c}
}

// Run records late completions until ctx ends. It reads the store after a rollout has
// changed, and the caches of workloads while a failed rollout may still complete.
func (l *LateCompletions) Run(ctx context.Context) {
	changes := l.cfg.Store.Watch(deploy.TopicRollout)
	defer changes.Close()
	tick := time.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	open, stale := map[string]deploy.Rollout{}, true
	for {
		if stale {
			found, err := l.failed(ctx)
			if err != nil {
				l.warn(ctx, "cannot read the failed rollouts; retrying", err)
			} else {
				open, stale = found, false
			}
		}
		for id, rec := range open {
			done, err := l.check(ctx, rec)
			if err != nil {
				l.warn(ctx, "cannot check whether a failed rollout has completed; retrying", err)
			}
			if done {
				delete(open, id)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-changes.C():
			changes.Take()
			stale = true
		default:
		}
	}
}

func (l *LateCompletions) warn(ctx context.Context, what string, err error) {
	if !ownership.Over(ctx, err) {
		l.cfg.Logger.WarnContext(ctx, what, "error", err)
	}
}

// failed returns, by ID, the deployments' rollouts that failed less than lateFor ago and are
// the latest of their workload.
func (l *LateCompletions) failed(ctx context.Context) (map[string]deploy.Rollout, error) {
	recorded, err := l.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: l.cfg.Observer.Cluster().Name(), Own: true, Limit: lateRead})
	found, seen := map[string]deploy.Rollout{}, map[string]bool{}
	for _, rec := range recorded {
		failed := rec.Phase == deploy.RolloutFailed || rec.Phase == deploy.RolloutTimedOut
		if failed && !rec.External() && !seen[rec.Workload.Key()] && l.cfg.Now().Sub(rec.CompletedAt) < lateFor {
			found[rec.ID] = rec
		}
		seen[rec.Workload.Key()] = true
	}
	return found, err
}

// check adds a note to the deployment of a failed rollout if the rollout has completed. done
// reports that the rollout needs no further check.
func (l *LateCompletions) check(ctx context.Context, rec deploy.Rollout) (done bool, err error) {
	d, err := l.cfg.Store.Deployment(ctx, rec.DeploymentID)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		return true, nil
	case err != nil || !d.Status.Completed():
		return false, err // its rollback may still apply another template
	}
	about := lateAbout(rec)
	if d.Status != deploy.Failure || strings.Contains(d.StatusReason, about) || l.cfg.Now().Sub(rec.CompletedAt) >= lateFor {
		return true, nil
	}
	ended, at, err := l.ended(ctx, rec)
	if err != nil || !ended.Terminal() || ended == deploy.RolloutFailed || ended == deploy.RolloutTimedOut {
		return false, err
	}
	if ended != deploy.RolloutComplete {
		return true, nil // superseded, or the workload was deleted
	}
	text := about + " " + at.UTC().Format(time.RFC3339) + ", after the deployment had failed"
	if err := l.cfg.Store.NoteDeployment(ctx, d.ID, rec.StageID, text); err != nil {
		return false, err
	}
	l.cfg.Logger.InfoContext(ctx, "a failed rollout has completed", "deployment", d.ID, "workload", rec.Workload.String())
	return true, nil
}

// lateAbout returns the beginning of the note about a rollout, which identifies it in a
// deployment's reason.
func lateAbout(rec deploy.Rollout) string {
	return fmt.Sprintf("%s: its rollout completed at", rec.Workload)
}

// ended evaluates a failed rollout as if it were open. It returns its phase and the time of
// its completion: that of the Deployment's condition if known, else now.
func (l *LateCompletions) ended(ctx context.Context, rec deploy.Rollout) (deploy.RolloutPhase, time.Time, error) {
	open := rec
	open.Phase = deploy.RolloutProgressing
	now, policy := l.cfg.Now(), rollout.Policy{NoFailFast: true}
	s, err := l.cfg.Observer.Cached(ctx, open)
	if err != nil {
		return "", now, err
	}
	v, s, err := l.cfg.Observer.Evaluate(ctx, open, s, policy, l.cfg.Now)
	if err != nil {
		return "", now, err
	}
	if w := s.Workload; w != nil && w.Progressing.Reason == "NewReplicaSetAvailable" {
		if at := w.Progressing.Updated.Add(-s.Skew); at.After(rec.CompletedAt) && at.Before(now) {
			return v.Record.Phase, at, nil
		}
	}
	return v.Record.Phase, now, nil
}
