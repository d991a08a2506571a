package rollout

import (
	"fmt"
	"math"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// unseen is SeenOld before old pods were counted: any count is fewer.
const unseen = math.MaxInt32

// Intended returns rec as it must be stored before its workload is applied for
// the first time: before is the live workload (nil if there is none), intent the
// digest of the template about to be applied as the API server would return it
// ("" if unknown). A record that was stored before must not be given again: what
// was live before the first apply is what tells a rollout from none.
func Intended(rec deploy.Rollout, before *Workload, intent string) deploy.Rollout {
	rec.Phase = deploy.RolloutIntent
	rec.IntentDigest = intent
	if before != nil {
		rec.LiveBefore, rec.ReplicasBefore, rec.ReplicasAfter = before.Template.Digest, before.Replicas, before.Replicas
	}
	return rec
}

// Applied returns rec after its workload was applied: w is the API server's
// answer, now the time it came. Applying again after a restart gives the same
// record again, and if that changed what somebody else had made of the workload
// meanwhile, one whose rollout begins anew. It never moves the time of the first apply.
// A terminal record is returned as it is.
func Applied(rec deploy.Rollout, w Workload, now time.Time) deploy.Rollout {
	begun := rec.Phase == deploy.RolloutProgressing || rec.Phase == deploy.RolloutHeld
	same := rec.UID == w.UID && rec.Generation == w.Generation
	if rec.Phase.Terminal() || same && (begun || rec.Phase == deploy.RolloutApplied) {
		return rec
	}
	rec.Phase, rec.Reason = deploy.RolloutApplied, ""
	if begun { // whether anything rolls has been decided
		rec.Phase, rec.Reason = deploy.RolloutProgressing, rec.Workload.Name+": applied again"
	}
	rec.UID, rec.Generation = w.UID, w.Generation
	rec.TemplateDigest, rec.TemplateBase, rec.Images = w.Template.Digest, w.Template.Base, w.Images
	rec.TemplateAnnotations = appliedAnnotations(w)
	rec.FollowedDigest, rec.FollowedAt = "", time.Time{}
	rec.TargetUID, rec.TargetName, rec.Revision = "", "", 0
	rec.DesiredAtStart, rec.ReplicasAfter = w.Replicas, w.Replicas
	if rec.AppliedAt.IsZero() {
		rec.AppliedAt = now
	}
	// The latest of all that is known to have been before: a condition with an
	// older time is not about this rollout.
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

// GivenUp returns rec as it ends when nobody waits for its rollout any longer.
// It is for phases TimedOut and Superseded, and NoRollout of what was not
// applied; a terminal record stays as it is.
func GivenUp(rec deploy.Rollout, phase deploy.RolloutPhase, now time.Time, format string, args ...any) deploy.Rollout {
	if rec.Phase.Terminal() {
		return rec
	}
	rec.Phase, rec.Reason = phase, fmt.Sprintf(format, args...)
	rec.CompletedAt, rec.UpdatedAt = now, now
	return rec
}

// serverAppliedAt is the cluster's time of the last apply; records of older agents have
// only one time.
func serverAppliedAt(rec deploy.Rollout) time.Time {
	if rec.ServerAppliedAt.IsZero() {
		return rec.AppliedAt
	}
	return rec.ServerAppliedAt
}

// resumedAt returns when a Deployment was resumed, if that is the last that happened to it.
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
