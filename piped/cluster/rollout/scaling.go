package rollout

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// ScalePolicy holds the time limits of scalings. A zero value means the default.
type ScalePolicy struct {
	// Quiet is how long the number of replicas must stay the same after the pods are ready,
	// before the scaling is complete. Changes until then belong to the same scaling. Default
	// 30 s.
	Quiet time.Duration
	// Longest is the maximum duration of a scaling. It then ends as Complete if its pods are
	// ready, otherwise as TimedOut. A later change begins a new scaling. Default 30 min.
	Longest time.Duration
}

func (p ScalePolicy) withDefaults() ScalePolicy {
	if p.Quiet == 0 {
		p.Quiet = 30 * time.Second
	}
	if p.Longest == 0 {
		p.Longest = 30 * time.Minute
	}
	return p
}

// Scale is the remembered state of a Deployment or StatefulSet by which Evaluate detects a
// change of its replicas without a change of its template. The zero value remembers nothing.
type Scale struct {
	UID      string
	Template string // digest of the pod template
	Replicas int32  // desired
	Rolling  bool   // pods of an earlier template may remain

	// Open is the stored record of the current scaling, nil without one.
	Open    *deploy.Rollout
	Steps   int       // observed changes of the number of replicas
	ReadyAt time.Time // when all wanted pods were ready after the last change; zero: not yet
	Unseen  bool      // resumed from the store and not evaluated since
}

// Resumed returns the Scale of a workload with an open scaling in the store.
func Resumed(open deploy.Rollout) Scale {
	return Scale{UID: open.UID, Template: open.TemplateDigest, Replicas: open.ReplicasAfter, Open: &open, Unseen: true}
}

// Evaluate compares the workload w, nil if it was deleted, with s. It returns the state to
// remember, and the record of a scaling that has begun or ended, otherwise nil. The state is
// the zero Scale for a deleted or recreated workload. app provides the application, cluster
// and workload of a new record. Evaluate is a pure function: a caller that cannot store the
// record retains s and calls Evaluate again.
//
// A change of replicas together with a new template, or during a rollout, belongs to the
// rollout. No scaling begins before all pods have the new template, and an open one is
// superseded.
func (s Scale) Evaluate(app deploy.Rollout, w *Workload, p ScalePolicy, now time.Time) (Scale, *deploy.Rollout) {
	p = p.withDefaults()
	name := app.Workload.Name
	switch {
	case w == nil || w.Deleting || s.UID != "" && s.UID != w.UID:
		return Scale{}, s.end(deploy.RolloutGone, now, name+" was deleted before its pods were ready")
	case s.UID == "":
		return Scale{UID: w.UID, Template: w.Template.Digest, Replicas: w.Replicas, Rolling: !rolled(w)}, nil
	case s.Template != w.Template.Digest:
		next := Scale{UID: w.UID, Template: w.Template.Digest, Replicas: w.Replicas, Rolling: true}
		ended := s.end(deploy.RolloutSuperseded, now, name+": a new pod template took over before the pods were ready")
		if ended != nil && ended.Phase == deploy.RolloutSuperseded {
			ended.SupersededBy = w.TemplateManager
		}
		return next, ended
	case s.Rolling:
		s.Replicas, s.Rolling = w.Replicas, !rolled(w)
		return s, nil
	case s.Open != nil:
		return s.goOn(w, p, now)
	case s.Replicas != w.Replicas:
		return s.begin(app, w, now)
	}
	return s, nil
}

// begin starts a scaling. The caller must replace Open by the record as stored.
func (s Scale) begin(app deploy.Rollout, w *Workload, now time.Time) (Scale, *deploy.Rollout) {
	rec := app
	rec.Kind, rec.ID = deploy.RolloutKindScaling, deploy.ScalingID(app.Cluster, w.UID, w.Generation)
	rec.UID, rec.Generation, rec.TemplateDigest, rec.Images = w.UID, w.Generation, w.Template.Digest, w.Images
	rec.ReplicasBefore, rec.ReplicasAfter = s.Replicas, w.Replicas
	rec.ChangedBy, rec.AppliedAt = w.ScaledBy, now
	if at := w.ScaledAt; !at.IsZero() && at.Before(now) {
		rec.AppliedAt = at
	}
	rec.Phase, rec.Reason = deploy.RolloutProgressing, fmt.Sprintf("%s: scaled from %d to %d", w.Name, s.Replicas, w.Replicas)
	s.Replicas, s.Open, s.Steps, s.ReadyAt = w.Replicas, &rec, 1, time.Time{}
	return s, &rec
}

// goOn updates the open scaling, and ends it when it is due.
func (s Scale) goOn(w *Workload, p ScalePolicy, now time.Time) (Scale, *deploy.Rollout) {
	unseen := s.Unseen
	s.Unseen = false
	if s.Replicas != w.Replicas {
		s.Replicas, s.ReadyAt = w.Replicas, time.Time{}
		s.Steps++
	}
	rec := *s.Open
	s.Open, rec.ReplicasAfter = &rec, w.Replicas
	ready := w.ObservedGeneration >= w.Generation && w.Ready == w.Replicas && w.Total == w.Replicas
	if ready && s.ReadyAt.IsZero() {
		s.ReadyAt = now
		if rec.Reason = s.summary(w); unseen {
			rec.Reason += "; its pods were ready when the agent began to watch again"
		}
	}
	if now.Before(s.Due(p)) {
		return s, nil
	}
	ended := s.end(deploy.RolloutTimedOut, now, fmt.Sprintf("%s: %d of %d pods ready after %s", w.Name, w.Ready, w.Replicas, p.Longest))
	s.Open, s.Steps, s.ReadyAt = nil, 0, time.Time{}
	return s, ended
}

// summary describes a scaling whose pods are ready.
func (s Scale) summary(w *Workload) string {
	text := fmt.Sprintf("%s: scaled from %d to %d", w.Name, s.Open.ReplicasBefore, w.Replicas)
	if s.Steps > 1 {
		text += fmt.Sprintf(" in %d steps", s.Steps)
	}
	return text
}

// end returns the ended record of the open scaling, nil without one. Its phase is Complete
// if the pods were ready, otherwise phase with the reason why.
func (s Scale) end(phase deploy.RolloutPhase, now time.Time, why string) *deploy.Rollout {
	if s.Open == nil {
		return nil
	}
	rec := *s.Open
	if s.ReadyAt.IsZero() {
		rec.Phase, rec.Reason, rec.CompletedAt = phase, why, now
	} else {
		rec.Phase, rec.CompletedAt = deploy.RolloutComplete, s.ReadyAt
	}
	return &rec
}

// Completed returns the Complete record of a scaling that is still observed but whose pods are
// all ready, for a caller that does not wait for ScalePolicy.Quiet without further changes. It
// returns nil if there is none.
func (s Scale) Completed() *deploy.Rollout {
	if s.ReadyAt.IsZero() {
		return nil
	}
	return s.end(deploy.RolloutComplete, s.ReadyAt, "")
}

// Due returns when the open scaling ends without a further change, the zero time without
// one.
func (s Scale) Due(p ScalePolicy) time.Time {
	p = p.withDefaults()
	if s.Open == nil {
		return time.Time{}
	}
	due := s.Open.StartedAt.Add(p.Longest)
	if quiet := s.ReadyAt.Add(p.Quiet); !s.ReadyAt.IsZero() && quiet.Before(due) {
		due = quiet
	}
	return due
}

// rolled reports whether all pods of w have its template, except those that its partition
// excludes. It always returns true for an observed workload with strategy OnDelete.
func rolled(w *Workload) bool {
	if w.ObservedGeneration < w.Generation {
		return false
	}
	return w.Strategy == "OnDelete" || w.Total == w.Replicas && w.Updated >= w.Total-w.Partition
}
