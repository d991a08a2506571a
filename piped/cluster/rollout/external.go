package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Baseline is what the caller knows of a workload all of whose rollouts are recorded, also
// those by others. The zero value knows nothing.
type Baseline struct {
	Known    bool
	Revision int64  // this revision and earlier ones are recorded or began before the agent watched; 0: none
	Images   string // of that revision

	// Resumed is when the workload was last resumed, zero if unknown: a template that was
	// written before it rolls out since then.
	Resumed time.Time
}

// External returns new records for the rollouts of a workload that no deployment of this
// agent started, the oldest first: one for each revision in s above all recorded ones and
// above that of the baseline. The record of the live revision is Progressing, even if its
// rollout has already ended. Earlier revisions were replaced before the agent saw them, so
// their records are Superseded.
//
// app provides the application, cluster and workload of the records. recorded contains the
// stored records of the workload, including external ones. Without a baseline External
// returns records only of a Deployment with a record that has its UID and a known revision.
// The caller must read recorded after s, and may store the result only if s is confirmed.
//
// final is false while the result may still change: the revision of the live template does
// not exist or is not the newest one, or an apply of this agent is in progress and its
// template is unknown.
func External(app deploy.Rollout, s Snapshot, recorded []deploy.Rollout, base Baseline, fieldManager string, now time.Time) (found []deploy.Rollout, final bool) {
	w := s.Workload
	if w == nil || w.Deleting || w.Kind != KindDeployment && !base.Known {
		return nil, true
	}
	e := evaluation{s: s, w: w, rec: deploy.Rollout{TemplateDigest: w.Template.Digest}}
	target, others, newest := e.split()
	if !newest || slices.ContainsFunc(recorded, beingApplied) {
		return nil, false
	}
	x := external{app: app, w: w, skew: s.Skew, recorded: recorded, base: base, fieldManager: fieldManager, now: now}
	last := x.last(append(slices.Clone(others), *target))
	if last == 0 && !base.Known {
		return nil, true
	}
	images := base.Images
	slices.SortFunc(others, func(a, b Revision) int { return cmp.Compare(a.Number, b.Number) })
	for _, r := range others {
		if r.Number > last && !x.passed(r) {
			rec := x.superseded(r)
			rec.ImagesBefore = images
			images = r.Images
			found = append(found, rec)
		}
	}
	if target.Number > last && !x.ours(*target) {
		rec := x.begun(*target)
		rec.ImagesBefore = images
		found = append(found, rec)
	}
	return found, true
}

// HasCurrent reports whether the snapshot has the revision of the workload's present template, and
// that is the newest.
func HasCurrent(s Snapshot) bool {
	e := evaluation{s: s, w: s.Workload, rec: deploy.Rollout{TemplateDigest: s.Workload.Template.Digest}}
	_, _, newest := e.split()
	return newest
}

// beingApplied reports whether rec is a record of this agent whose apply may have happened
// without a stored result.
func beingApplied(rec deploy.Rollout) bool {
	return !rec.External() && rec.Phase == deploy.RolloutIntent
}

// external holds the arguments of one call of External.
type external struct {
	app          deploy.Rollout
	w            *Workload
	skew         time.Duration
	recorded     []deploy.Rollout
	base         Baseline
	fieldManager string
	now          time.Time
}

// last returns the highest recorded revision, at least that of the baseline, 0 if none is
// known. The agent's first record of a Deployment may not have its revision yet, or never get
// it; without a baseline last then returns the revision of the ReplicaSet that matches the
// record. Lower revisions existed before the agent managed the Deployment. The agent's own
// records of other kinds count their revisions otherwise.
func (x external) last(revisions []Revision) int64 {
	last, first := x.base.Revision, int64(0)
	for _, rec := range x.recorded {
		if rec.UID != x.w.UID {
			continue
		}
		if rec.External() || x.w.Kind == KindDeployment {
			last = max(last, rec.Revision)
		}
		for _, r := range revisions {
			if isOf(rec, r) {
				first = max(first, r.Number)
			}
		}
	}
	if x.base.Known {
		return last
	}
	return cmp.Or(last, first)
}

// ours reports whether the live revision r belongs to the agent or to a recorded rollout.
// The record of the agent may not have its revision yet, because it is stored before the
// apply and completed after it. A restart by a user during an open rollout belongs to that
// rollout.
func (x external) ours(r Revision) bool {
	if x.w.TemplateManager == x.fieldManager && (!x.base.Known || slices.ContainsFunc(x.recorded, x.ownRecord)) {
		return true
	}
	return slices.ContainsFunc(x.recorded, func(rec deploy.Rollout) bool {
		if rec.External() {
			return x.burst(rec, r)
		}
		return !rec.Phase.Terminal() && (isOf(rec, r) || rec.UID == x.w.UID && restarted(rec, x.w))
	})
}

// ownRecord reports whether rec is a record of this agent's own applies of the workload. An
// agent with another store has the same field manager.
func (x external) ownRecord(rec deploy.Rollout) bool { return !rec.External() && rec.UID == x.w.UID }

// burst reports whether revision r continues the open rollout rec, because their templates
// differ only in annotations. An external rollout is continued only by its own field
// manager.
func (x external) burst(rec deploy.Rollout, r Revision) bool {
	return !rec.Phase.Terminal() && rec.UID == x.w.UID && rec.TemplateBase != "" && rec.TemplateBase == r.Template.Base &&
		(!rec.External() || rec.ChangedBy == x.w.TemplateManager)
}

// passed reports whether an earlier revision r belongs to a recorded rollout: to one of this
// agent that is open or has no revision yet, or to an open one that r continues.
func (x external) passed(r Revision) bool {
	return slices.ContainsFunc(x.recorded, func(rec deploy.Rollout) bool {
		unnumbered := rec.Revision == 0 || x.w.Kind != KindDeployment
		return !rec.External() && isOf(rec, r) && (unnumbered || !rec.Phase.Terminal()) || x.burst(rec, r)
	})
}

// isOf reports whether r has the applied, followed or intended template of rec.
func isOf(rec deploy.Rollout, r Revision) bool {
	digest := r.Template.Digest
	return digest == rec.TemplateDigest || digest == rec.FollowedDigest || digest == rec.IntentDigest
}

// begun returns the Progressing record of the live revision.
func (x external) begun(r Revision) deploy.Rollout {
	rec := x.record(r)
	rec.Phase, rec.Reason = deploy.RolloutProgressing, x.w.Name+": an unknown field manager changed the pod template"
	rec.ChangedBy = x.w.TemplateManager
	if rec.ChangedBy != "" {
		rec.Reason = x.w.Name + ": field manager \"" + rec.ChangedBy + "\" changed the pod template"
	}
	rec.Generation, rec.DesiredAtStart, rec.Images = x.w.Generation, x.w.Replicas, x.w.Images
	rec.ReplicasBefore, rec.ReplicasAfter = x.w.Replicas, x.w.Replicas
	rec.AppliedAt = x.now
	if at := x.w.TemplateManagedAt; !at.IsZero() && at.Add(-x.skew).Before(x.now) {
		rec.AppliedAt = latest(at.Add(-x.skew), x.base.Resumed)
		// The resume may have been seen late. A revision that was made for the template was made since.
		if made := r.Created.Add(-x.skew); !r.Created.Before(at) && made.Before(rec.AppliedAt) {
			rec.AppliedAt = made
		}
	}
	rec.ServerAppliedAt = latest(x.w.TemplateManagedAt, rec.AppliedAt.Add(x.skew))
	rec.LastProgress, rec.SeenOld = x.now, unseen
	return rec
}

// superseded returns the Superseded record of an earlier revision. Its start is known only if
// the ReplicaSet was created for it; a ReplicaSet with another record was reused.
func (x external) superseded(r Revision) deploy.Rollout {
	rec := x.record(r)
	rec.SourceRepository, rec.SourceCommit = "", "" // the workload's annotations are those of the live revision
	if r.Source.Commit != "" {
		source := r.Source.over(x.w.Source)
		rec.SourceRepository, rec.SourceCommit = source.Repository, source.Commit
	}
	rec.Phase, rec.Reason = deploy.RolloutSuperseded, x.w.Name+": a newer revision followed before this one was seen"
	if !slices.ContainsFunc(x.recorded, func(old deploy.Rollout) bool { return old.TargetUID == r.UID }) {
		rec.AppliedAt = r.Created.Add(-x.skew)
	}
	return rec
}

// record returns the record of a revision without phase and times.
func (x external) record(r Revision) deploy.Rollout {
	rec := x.app
	rec.ID = deploy.ExternalRolloutID(rec.Cluster, x.w.UID, r.Number)
	rec.UID, rec.TemplateDigest, rec.TemplateBase, rec.Images = x.w.UID, r.Template.Digest, r.Template.Base, r.Images
	rec.TargetUID, rec.TargetName, rec.Revision = r.UID, r.Name, r.Number
	rec.SourceRepository, rec.SourceCommit = x.w.Source.Repository, x.w.Source.Commit
	return rec
}
