package rollout

import (
	"fmt"
	"math"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// unseen is the value of SeenOld before old pods were counted: any count is lower.
const unseen = math.MaxInt32

// Intended returns rec as the caller must store it before it applies the workload for the
// first time. before is the live workload, nil if there is none. intent is the digest of the
// template to apply as the API server would return it, "" if unknown. The caller must not
// pass a record that was already stored: LiveBefore must be from before the first apply,
// because it distinguishes a rollout from an unchanged template.
func Intended(rec deploy.Rollout, before *Workload, intent string) deploy.Rollout {
	rec.Phase = deploy.RolloutIntent
	rec.IntentDigest = intent
	if before != nil {
		rec.LiveBefore, rec.ReplicasBefore, rec.ReplicasAfter = before.Template.Digest, before.Replicas, before.Replicas
		rec.ImagesBefore = before.Images
	}
	return rec
}

// Applied returns rec as the caller must store it after an apply: w is the response of the
// API server, received at now. For a repeated apply, for example after a restart, it returns
// rec unchanged if the workload did not change. If the repeated apply reverted a change by
// another manager, the rollout begins again. AppliedAt remains the time of the first apply.
// A terminal record is returned unchanged.
func Applied(rec deploy.Rollout, w Workload, now time.Time) deploy.Rollout {
	begun := rec.Phase == deploy.RolloutProgressing || rec.Phase == deploy.RolloutHeld
	same := rec.UID == w.UID && rec.Generation == w.Generation
	if rec.Phase.Terminal() || same && (begun || rec.Phase == deploy.RolloutApplied) {
		return rec
	}
	rec.Phase, rec.Reason = deploy.RolloutApplied, ""
	if begun { // an earlier evaluation has decided that there is a rollout
		rec.Phase, rec.Reason = deploy.RolloutProgressing, rec.Workload.Name+": applied again"
	}
	rec.UID, rec.Generation = w.UID, w.Generation
	rec.TemplateDigest, rec.TemplateBase, rec.Images = w.Template.Digest, w.Template.Base, w.Images
	rec.TemplateAnnotations = appliedAnnotations(w)
	rec.SourceRepository, rec.SourceCommit = w.Source.Repository, w.Source.Commit
	rec.FollowedDigest, rec.FollowedAt = "", time.Time{}
	rec.TargetUID, rec.TargetName, rec.Revision = "", "", 0
	rec.DesiredAtStart, rec.ReplicasAfter = w.Replicas, w.Replicas
	if rec.AppliedAt.IsZero() {
		rec.AppliedAt = now
	}
	// The latest time known to precede the rollout: an older condition does not concern it.
	rec.ServerAppliedAt = latest(w.ManagedAt, w.Progressing.Updated)
	if w.ManagedAt.IsZero() { // unknown
		rec.ServerAppliedAt = latest(now, rec.ServerAppliedAt)
	}
	rec.ResumedAt = w.resumedAt()
	rec.LastProgress = now
	rec.FailingSince, rec.TroubleSince = time.Time{}, time.Time{}
	rec.SeenReady, rec.SeenAvailable, rec.SeenOld = 0, 0, unseen
	rec.UpdatedAt = now
	return rec
}

// GivenUp returns rec as ended in phase because no stage waits for the rollout any longer.
// phase is TimedOut, Superseded or, if the template was not applied, NoRollout. A terminal
// record is returned unchanged.
func GivenUp(rec deploy.Rollout, phase deploy.RolloutPhase, now time.Time, format string, args ...any) deploy.Rollout {
	if rec.Phase.Terminal() {
		return rec
	}
	rec.Phase, rec.Reason = phase, fmt.Sprintf(format, args...)
	rec.CompletedAt, rec.UpdatedAt = now, now
	return rec
}

// serverAppliedAt returns the cluster's time of the last apply. Records of older agents
// contain only AppliedAt.
func serverAppliedAt(rec deploy.Rollout) time.Time {
	if rec.ServerAppliedAt.IsZero() {
		return rec.AppliedAt
	}
	return rec.ServerAppliedAt
}

// resumedAt returns when a Deployment was resumed, the zero time if its condition
// Progressing has another reason.
func (w *Workload) resumedAt() time.Time {
	if w.Progressing.Reason != "DeploymentResumed" {
		return time.Time{}
	}
	return w.Progressing.Updated
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
