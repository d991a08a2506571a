package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// External returns records of the rollouts of a Deployment that are not among
// those recorded, the oldest revision first: each ReplicaSet with a revision
// above all recorded ones that no deployment of this agent made. Its last one is
// Progressing if it is the live revision, whether it has ended or not; earlier
// ones were overtaken before they were seen, and are Superseded.
//
// App gives the application, cluster and workload of the records; recorded are
// those of the workload, external ones included. Without one of the same UID and
// of a known revision nothing is known of the workload, and nothing is returned. S
// must be confirmed to be acted on, and recorded be read after s was. Settled is false
// while it cannot be known yet: the ReplicaSet of the live template is not there or not
// the newest, or the agent is about to apply and does not know which template the API
// server makes of it.
func External(app deploy.Rollout, s Snapshot, recorded []deploy.Rollout, fieldManager string, now time.Time) (found []deploy.Rollout, settled bool) {
	w := s.Workload
	if w == nil || w.Deleting || w.Kind != KindDeployment {
		return nil, true
	}
	e := evaluation{s: s, w: w, rec: deploy.Rollout{TemplateDigest: w.Template.Digest}}
	target, others, newest := e.split()
	if !newest || slices.ContainsFunc(recorded, beingApplied) {
		return nil, false
	}
	x := external{app: app, w: w, skew: s.Skew, recorded: recorded, fieldManager: fieldManager, now: now}
	last := x.last(append(slices.Clone(others), *target))
	if last == 0 {
		return nil, true
	}
	slices.SortFunc(others, func(a, b Revision) int { return cmp.Compare(a.Number, b.Number) })
	for _, r := range others {
		if r.Number > last && !x.passed(r) {
			found = append(found, x.overtaken(r))
		}
	}
	if target.Number > last && !x.ours(*target) {
		found = append(found, x.begun(*target))
	}
	return found, true
}

// beingApplied reports whether a record is one of this agent's whose apply may have
// happened without an answer.
func beingApplied(rec deploy.Rollout) bool {
	return !rec.External() && rec.Phase == deploy.RolloutIntent
}

// external is one call of External.
type external struct {
	app          deploy.Rollout
	w            *Workload
	skew         time.Duration
	recorded     []deploy.Rollout
	fieldManager string
	now          time.Time
}

// last returns the highest revision there is a record of, 0 if there is none. The
// agent's first record of a Deployment has no number for a moment, or never learned
// it, but its ReplicaSet has one: what is below was there before the agent came.
func (x external) last(revisions []Revision) int64 {
	var last, first int64
	for _, rec := range x.recorded {
		if rec.UID != x.w.UID {
			continue
		}
		last = max(last, rec.Revision)
		for _, r := range revisions {
			if isOf(rec, r) {
				first = max(first, r.Number)
			}
		}
	}
	return cmp.Or(last, first)
}

// ours reports whether the live revision is one of this agent's rollouts, whose
// record may not have its number yet: it is stored before the apply and
// completed after it, and a restart by hand while it is open is followed by it.
func (x external) ours(r Revision) bool {
	if x.w.TemplateManager == x.fieldManager {
		return true
	}
	return slices.ContainsFunc(x.recorded, func(rec deploy.Rollout) bool {
		if rec.External() {
			return x.burst(rec, r)
		}
		return !rec.Phase.Terminal() && (isOf(rec, r) || rec.UID == x.w.UID && restarted(rec, x.w))
	})
}

// burst reports whether a revision may belong to a rollout that goes on, because it
// differs in annotations of the template only. An external rollout goes on with changes
// of its own field manager.
func (x external) burst(rec deploy.Rollout, r Revision) bool {
	return !rec.Phase.Terminal() && rec.UID == x.w.UID && rec.TemplateBase != "" && rec.TemplateBase == r.Template.Base &&
		(!rec.External() || rec.ChangedBy == x.w.TemplateManager)
}

// passed reports whether an earlier revision is that of a rollout of this agent
// whose record did not learn its number.
func (x external) passed(r Revision) bool {
	return slices.ContainsFunc(x.recorded, func(rec deploy.Rollout) bool {
		return !rec.External() && isOf(rec, r) && (rec.Revision == 0 || !rec.Phase.Terminal()) || x.burst(rec, r)
	})
}

func isOf(rec deploy.Rollout, r Revision) bool {
	digest := r.Template.Digest
	return digest == rec.TemplateDigest || digest == rec.FollowedDigest || digest == rec.IntentDigest
}

// begun is the record of the live revision.
func (x external) begun(r Revision) deploy.Rollout {
	rec := x.record(r)
	rec.Phase, rec.Reason = deploy.RolloutProgressing, x.w.Name+": somebody changed the pod template"
	rec.ChangedBy = x.w.TemplateManager
	if rec.ChangedBy != "" {
		rec.Reason = x.w.Name + ": field manager \"" + rec.ChangedBy + "\" changed the pod template"
	}
	rec.Generation, rec.DesiredAtStart, rec.Images = x.w.Generation, x.w.Replicas, x.w.Images
	rec.ReplicasBefore, rec.ReplicasAfter = x.w.Replicas, x.w.Replicas
	rec.AppliedAt = x.now
	if at := x.w.TemplateManagedAt; !at.IsZero() && at.Add(-x.skew).Before(x.now) {
		rec.AppliedAt = at.Add(-x.skew)
	}
	rec.ServerAppliedAt = latest(x.w.TemplateManagedAt, rec.AppliedAt.Add(x.skew))
	rec.LastProgress, rec.SeenOld = x.now, unseen
	return rec
}

// overtaken is the record of an earlier revision. When it began is known only
// if its ReplicaSet was made for it.
func (x external) overtaken(r Revision) deploy.Rollout {
	rec := x.record(r)
	rec.Phase, rec.Reason = deploy.RolloutSuperseded, x.w.Name+": a newer revision followed before this one was seen"
	if !slices.ContainsFunc(x.recorded, func(old deploy.Rollout) bool { return old.TargetUID == r.UID }) {
		rec.AppliedAt = r.Created.Add(-x.skew)
	}
	return rec
}

func (x external) record(r Revision) deploy.Rollout {
	rec := x.app
	rec.ID = deploy.ExternalRolloutID(rec.Cluster, x.w.UID, r.Number)
	rec.UID, rec.TemplateDigest, rec.TemplateBase, rec.Images = x.w.UID, r.Template.Digest, r.Template.Base, r.Images
	rec.TargetUID, rec.TargetName, rec.Revision = r.UID, r.Name, r.Number
	return rec
}
