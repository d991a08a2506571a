package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// begins reports whether r, which is about to be stored, is the first state of its record in
// which the rollout has begun. Scalings have no start.
func (t *tx) begins(ctx context.Context, r deploy.Rollout) (bool, error) {
	if r.Kind != deploy.RolloutKindRollout || !r.Begun() {
		return false, nil
	}
	if r.Version == 0 {
		return true, nil
	}
	phase, _, err := one(ctx, t, scanText, "SELECT phase FROM rollouts WHERE id = ?", r.ID)
	return !(deploy.Rollout{Phase: deploy.RolloutPhase(phase)}).Begun(), err
}

// announceStart publishes the start of r.
func (t *tx) announceStart(ctx context.Context, r deploy.Rollout) error {
	interrupts, err := t.interrupted(ctx, r)
	if err != nil {
		return err
	}
	t.announceRollout(r, deploy.EventRolloutStarted, r.ID+"/started", deploy.EventPayload{
		Reason: startReason(r, interrupts), Phase: deploy.RolloutProgressing, Rollout: new(r.Started()), Interrupts: interrupts,
	})
	return nil
}

// interruptedWithin is how long after the end of a superseded rollout another one still counts
// as its interruption. Whether the superseded one would have ended by then is unknown.
const interruptedWithin = time.Minute

// interrupted returns the ID of the workload's rollout that had not ended when r began, "" if
// there was none. A workload that was created again has no rollout before.
func (t *tx) interrupted(ctx context.Context, r deploy.Rollout) (string, error) {
	last, ok, err := one(ctx, t, scanRollout, selectRollout+` WHERE cluster = ? AND workload = ? AND kind = ? AND id <> ? AND phase NOT IN (?, ?, ?)
		ORDER BY created_at DESC, started_at DESC, id LIMIT 1`, r.Cluster, r.Workload.Key(), string(r.Kind), r.ID,
		string(deploy.RolloutIntent), string(deploy.RolloutApplied), string(deploy.RolloutNoRollout))
	switch {
	case err != nil || !ok:
		return "", err
	case last.UID != "" && r.UID != "" && last.UID != r.UID: // the workload was created again
		return "", nil
	case !last.Phase.Terminal(),
		last.Phase == deploy.RolloutSuperseded && r.StartedAt.Sub(last.CompletedAt) < interruptedWithin:
		return last.ID, nil
	}
	return "", nil
}

// startReason returns why r began.
func startReason(r deploy.Rollout, interrupts string) string {
	reasons := []string{"a deployment changed the pod template"}
	switch {
	case r.External() && r.ChangedBy != "":
		reasons[0] = fmt.Sprintf("field manager %q changed the pod template", r.ChangedBy)
	case r.External():
		reasons[0] = "an unknown field manager changed the pod template"
	}
	if r.FoundLate {
		reasons = append(reasons, "it began while the agent was not watching")
	}
	if interrupts != "" {
		reasons = append(reasons, "it interrupts a rollout that had not ended")
	}
	return strings.Join(reasons, "; ")
}

// announceEnd publishes the end of r. Scalings have a separate event type, so that receivers
// of rollout events do not get the changes of autoscalers.
func (t *tx) announceEnd(r deploy.Rollout) error {
	if !r.Phase.Terminal() {
		return nil
	}
	kind := deploy.EventRolloutEnded
	if r.Kind == deploy.RolloutKindScaling {
		kind = deploy.EventScalingEnded
	}
	t.announceRollout(r, kind, r.ID, deploy.EventPayload{Reason: r.Reason, Phase: r.Phase, Rollout: new(r.Ended())})
	return nil
}

// RecoverRollout records that a failed rollout completed after all, at a time, and publishes an
// event. Its phase remains. Conflict if it has not failed, or has recovered already.
func (s *Store) RecoverRollout(ctx context.Context, id string, at time.Time) error {
	err := s.write(ctx, func(t *tx) error {
		r, ok, err := one(ctx, t, scanRollout, selectRollout+" WHERE id = ?", id)
		failed := r.Phase == deploy.RolloutFailed || r.Phase == deploy.RolloutTimedOut
		switch {
		case err != nil:
			return err
		case !ok:
			return deploy.Errorf(deploy.NotFound, "there is no rollout %s", id)
		case !failed || !r.RecoveredAt.IsZero():
			return deploy.Errorf(deploy.Conflict, "rollout %s has not failed, or has recovered already: it is %s", id, r.Phase)
		}
		note := "its rollout completed at " + at.UTC().Format(time.RFC3339) + ", after it had failed"
		r.RecoveredAt, r.Reason = milli(at), strings.TrimPrefix(r.Reason+"; "+note, "; ")
		text, err := rolloutText(r)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, "UPDATE rollouts SET body = ?, version = version + 1 WHERE id = ?", text, id); err != nil {
			return err
		}
		t.changed(deploy.TopicRollout, r.ID, r.ApplicationID)
		t.announceRollout(r, deploy.EventRolloutRecovered, r.ID+"/recovered", deploy.EventPayload{Reason: note, Phase: deploy.RolloutComplete, Rollout: new(r.Ended())})
		t.events[len(t.events)-1].At = t.store.now()
		return nil
	})
	return s.fail(err, "record that rollout "+id+" has completed")
}

// announceRollout publishes an event of r.
func (t *tx) announceRollout(r deploy.Rollout, kind deploy.EventType, key string, p deploy.EventPayload) {
	p.Application, p.Cluster, p.Workload = r.ApplicationName, r.Cluster, &r.Workload
	t.events = append(t.events, deploy.Event{
		Key: key, Type: kind, ApplicationID: r.ApplicationID, DeploymentID: r.DeploymentID, StageID: r.StageID, Payload: p.JSON(), At: r.UpdatedAt,
	})
}
