package rollout

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// ScalePolicy holds the times of scalings; zero values mean the defaults.
type ScalePolicy struct {
	// Quiet is how long the number of pods has to stay what it is for a scaling to be
	// over. Changes until then are one scaling. Default 30 s.
	Quiet time.Duration
	// Longest is how long a scaling may go on. One that is not over then has timed
	// out, unless its pods are ready, and a further change is the next one. Default 30 min.
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

// Scale is what is remembered of a Deployment or StatefulSet to tell by when the
// number of its pods is changed and nothing else. Its zero value remembers nothing.
type Scale struct {
	UID      string
	Template string // digest of the pod template
	Replicas int32  // wanted
	Rolling  bool   // pods of an earlier template may be left

	// Open is the record of the scaling that goes on, as stored; nil when none does.
	Open      *deploy.Rollout
	Steps     int       // changes of the number, as far as they were seen
	SettledAt time.Time // when as many pods as wanted were ready after the last change; zero: not yet
	Unseen    bool      // taken up from the store, and not looked at since
}

// Resumed returns what is remembered of a workload of which the store has a scaling
// that has not ended.
func Resumed(open deploy.Rollout) Scale {
	return Scale{UID: open.UID, Template: open.TemplateDigest, Replicas: open.ReplicasAfter, Open: &open, Unseen: true}
}

// Look returns what to remember after a look at the workload w, nil when it is gone,
// and the record that has to be stored for that, if one has: of a scaling that has
// begun, or of one that has ended. App gives the application, cluster and workload of
// a new record. It is pure: who cannot store the record remembers what he did, and
// looks again.
//
// The number of pods that comes with a new template, or while a rollout goes on, is
// the rollout's: no scaling is begun before all pods are of the new template, and one
// that goes on is superseded.
func (s Scale) Look(app deploy.Rollout, w *Workload, p ScalePolicy, now time.Time) (Scale, *deploy.Rollout) {
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

// begin begins a scaling. What is remembered with it must hold the record as stored.
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
	s.Replicas, s.Open, s.Steps, s.SettledAt = w.Replicas, &rec, 1, time.Time{}
	return s, &rec
}

// goOn takes a scaling on.
func (s Scale) goOn(w *Workload, p ScalePolicy, now time.Time) (Scale, *deploy.Rollout) {
	unseen := s.Unseen
	s.Unseen = false
	if s.Replicas != w.Replicas {
		s.Replicas, s.SettledAt = w.Replicas, time.Time{}
		s.Steps++
	}
	rec := *s.Open
	s.Open, rec.ReplicasAfter = &rec, w.Replicas
	ready := w.ObservedGeneration >= w.Generation && w.Ready == w.Replicas && w.Total == w.Replicas
	if ready && s.SettledAt.IsZero() {
		s.SettledAt = now
		if rec.Reason = s.told(w); unseen {
			rec.Reason += "; its pods were ready when the agent began to watch again"
		}
	}
	if now.Before(s.Due(p)) {
		return s, nil
	}
	ended := s.end(deploy.RolloutTimedOut, now, fmt.Sprintf("%s: %d of %d pods ready after %s", w.Name, w.Ready, w.Replicas, p.Longest))
	s.Open, s.Steps, s.SettledAt = nil, 0, time.Time{}
	return s, ended
}

// told says what a scaling that has settled did.
func (s Scale) told(w *Workload) string {
	text := fmt.Sprintf("%s: scaled from %d to %d", w.Name, s.Open.ReplicasBefore, w.Replicas)
	if s.Steps > 1 {
		text += fmt.Sprintf(" in %d steps", s.Steps)
	}
	return text
}

// end returns the record of the scaling that goes on as it has ended, nil if none
// does: complete if its pods were ready, else as phase because of why.
func (s Scale) end(phase deploy.RolloutPhase, now time.Time, why string) *deploy.Rollout {
	if s.Open == nil {
		return nil
	}
	rec := *s.Open
	if s.SettledAt.IsZero() {
		rec.Phase, rec.Reason, rec.CompletedAt = phase, why, now
	} else {
		rec.Phase, rec.CompletedAt = deploy.RolloutComplete, s.SettledAt
	}
	return &rec
}

// Settled returns the record of a scaling whose pods are ready as it ends when nobody
// waits for further changes, nil if there is none.
func (s Scale) Settled() *deploy.Rollout {
	if s.SettledAt.IsZero() {
		return nil
	}
	return s.end(deploy.RolloutComplete, s.SettledAt, "")
}

// Due returns when time alone ends the scaling that goes on; the zero time when none
// does.
func (s Scale) Due(p ScalePolicy) time.Time {
	p = p.withDefaults()
	if s.Open == nil {
		return time.Time{}
	}
	due := s.Open.StartedAt.Add(p.Longest)
	if quiet := s.SettledAt.Add(p.Quiet); !s.SettledAt.IsZero() && quiet.Before(due) {
		due = quiet
	}
	return due
}

// rolled reports whether all pods of w are of its template, those aside that its
// partition keeps back.
func rolled(w *Workload) bool {
	if w.ObservedGeneration < w.Generation {
		return false
	}
	return w.Strategy == "OnDelete" || w.Total == w.Replicas && w.Updated >= w.Total-w.Partition
}
