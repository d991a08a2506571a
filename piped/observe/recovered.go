package observe

import (
	"context"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// failed reports whether a rollout has failed, and may still complete: because an image was
// pushed too late, or a node came back.
func failed(rec deploy.Rollout) bool {
	return rec.RecoveredAt.IsZero() && (rec.Phase == deploy.RolloutFailed || rec.Phase == deploy.RolloutTimedOut)
}

// resumeFailed reads the records that failed less than lateFor ago and are the newest of their
// workload. x.mu is held.
func (x *ExternalRollouts) resumeFailed(ctx context.Context) error {
	recorded, err := x.cfg.Store.Rollouts(ctx, store.RolloutQuery{Cluster: x.cluster(), External: true, Limit: lateRead})
	seen := map[workloadKey]bool{}
	for _, rec := range recorded {
		key := keyOf(rec.Workload)
		if !seen[key] && failed(rec) && x.cfg.Now().Sub(rec.CompletedAt) < lateFor {
			x.known[key] = &knownWorkload{uid: rec.UID, failed: &rec}
		}
		seen[key] = true
	}
	return err
}

// recover records that a failed rollout has completed after all.
func (x *ExternalRollouts) recover(ctx context.Context, known *knownWorkload, s rollout.Snapshot) error {
	rec := *known.failed
	if x.cfg.Now().Sub(rec.CompletedAt) >= lateFor {
		known.failed = nil
		return nil
	}
	open := rec
	open.Phase = deploy.RolloutProgressing
	policy := rollout.Policy{NoFailFast: true, FieldManager: x.cfg.FieldManager}
	if s.Workload.Replicas == 0 || rollout.Evaluate(open, s, policy, x.cfg.Now()).Ends != deploy.RolloutComplete {
		return nil // no request is sent to confirm that it still fails
	}
	v, s, err := x.cfg.Observer.Evaluate(ctx, open, s, policy, x.cfg.Now)
	if err != nil || v.Record.Phase != deploy.RolloutComplete {
		return err
	}
	at := v.Record.CompletedAt
	if w := s.Workload; w.Progressing.Reason == "NewReplicaSetAvailable" {
		if shown := w.Progressing.Updated.Add(-s.Skew); shown.After(rec.CompletedAt) && shown.Before(at) {
			at = shown
		}
	}
	err = x.cfg.Store.RecoverRollout(ctx, rec.ID, at)
	if err != nil && !deploy.IsKind(err, deploy.Conflict) && !deploy.IsKind(err, deploy.NotFound) {
		return err
	}
	known.failed = nil
	x.cfg.Logger.InfoContext(ctx, "a failed external rollout has completed", "workload", rec.Workload.String(), "revision", rec.Revision)
	return nil
}
