package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// foreignEvidence is what the agent left, and what the oracle saw.
type foreignEvidence struct {
	records  []deploy.Rollout
	events   []foreignEvent // each once, in the order of delivery
	seen     map[string]*foreignWorkload
	launched time.Time
	ups      []uptime
	proofs   []proof

	byID map[string]*deploy.Rollout
	rolloutFaults
	awake []time.Duration // from the start of a rollout to its record, while the agent ran
}

// verify compares the agent's records and notifications with the oracle's observations, and
// prints the figures. The agent has stopped.
func (c *foreignChaos) verify(t *testing.T) {
	c.noteWatch(t)
	e := foreignEvidence{
		records: readRollouts(t, filepath.Join(c.dir, "piped")).rollouts, events: c.hook.got, seen: c.oracle.byName, launched: c.launched, ups: c.ups, proofs: c.proofs,
	}
	e.compare()
	for what, lines := range map[string][]string{"lost": e.lost, "duplicate": e.duplicate, "false": e.wrong} {
		for _, line := range lines[:min(len(lines), 10)] {
			t.Errorf("%s: %s", what, line)
		}
	}
	if len(e.awake) == 0 {
		t.Error("no rollout began while the agent certainly watched: nothing is proved of these")
	}
	ends, late := map[string]int{}, 0
	for _, r := range e.records {
		ends[r.Workload.Kind+" "+string(r.Phase)]++
		if r.FoundLate {
			late++
		}
	}
	t.Logf(`%d rollouts in %s, %d records: %s; %d found late
  %d notifications; killed %d times, %d watches cut, %d forced to list again
  %d lost, %d duplicate, %d false
  from the start to its record, with the agent alive: %s`,
		c.oracle.began(), time.Since(c.began).Round(time.Second), len(e.records), counts(ends), late,
		len(e.events), len(c.ups)-1, c.cuts, c.proxy.Refused(), len(e.lost), len(e.duplicate), len(e.wrong), spread(e.awake))
}

// compare finds the faults.
func (e *foreignEvidence) compare() {
	e.byID = map[string]*deploy.Rollout{}
	for i := range e.records {
		r := &e.records[i]
		e.byID[r.ID] = r
		if w := e.seen[r.Workload.Name]; w == nil || w.life(r.UID).rollout(r.Revision) == nil {
			e.falsely(r, "no such revision was seen")
		}
	}
	for name, w := range e.seen {
		for _, l := range w.lives {
			e.compareLife(name, w, l)
		}
	}
	e.compareEvents()
}

func (l *foreignLife) rollout(revision int64) *foreignRollout {
	if l != nil {
		for _, r := range l.rollouts {
			if r.revision == revision {
				return r
			}
		}
	}
	return nil
}

func (e *foreignEvidence) falsely(r *deploy.Rollout, format string, args ...any) {
	e.wrong = append(e.wrong, fmt.Sprintf("%s of %s revision %d, %s at %s (%s): %s",
		r.ID, r.Workload.Name, r.Revision, r.Phase, r.CompletedAt.Format(time.StampMilli), r.Reason, fmt.Sprintf(format, args...)))
}

func (e *foreignEvidence) record(l *foreignLife, r *foreignRollout) *deploy.Rollout {
	return e.byID[deploy.ExternalRolloutID("devcluster", l.uid, r.revision)]
}

// compareLife compares the rollouts of a workload with its records, in the order of
// revisions.
func (e *foreignEvidence) compareLife(name string, w *foreignWorkload, l *foreignLife) {
	var last *deploy.Rollout
	for i, next := 0, 0; i < len(l.rollouts); i = next {
		next = i + 1
		r := l.rollouts[i]
		rec := e.record(l, r)
		if rec == nil {
			if e.due(l, r) {
				e.lost = append(e.lost, fmt.Sprintf("the rollout of %s to %s, revision %d, begun at %s", name, r.image, r.revision, r.begun.Format(time.StampMilli)))
			}
			continue
		}
		for next < len(l.rollouts) && e.continues(l, rec, l.rollouts[next]) {
			next++
		}
		f := foreignCase{rec, w, l, l.rollouts[i:next], nil}
		if next < len(l.rollouts) {
			f.next = l.rollouts[next]
		}
		e.checkStart(f, i, last)
		e.checkEnd(f)
		last = rec
	}
}

// due reports whether a rollout must have a record: the agent handled all that had happened while
// the number of its revision could be seen.
func (e *foreignEvidence) due(l *foreignLife, r *foreignRollout) bool {
	if r.begun.Before(e.ups[0].from) {
		return false // before the agent is known to watch
	}
	until := l.deleting
	if !r.hidden.IsZero() {
		until = earliest(until, r.hidden)
	}
	return e.handled(r.begun, until)
}

// handled reports whether the agent certainly handled what happened at a time before another one, at
// which the oracle saw something else; zero: it did not.
func (e *foreignEvidence) handled(at, until time.Time) bool {
	return slices.ContainsFunc(e.proofs, func(p proof) bool {
		return p.began.After(at) && (until.IsZero() || until.Add(-oracleLag).After(p.seen))
	})
}

// earliest returns the earlier of two times, of which the first may be zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// continues reports whether revision r belongs to rec: the same image was restarted before
// its rollout had ended.
func (e *foreignEvidence) continues(l *foreignLife, rec *deploy.Rollout, r *foreignRollout) bool {
	return e.record(l, r) == nil && imageOf(r.image) == rec.Images && (!rec.Phase.Terminal() || rec.CompletedAt.After(r.begun.Add(-oracleLag)))
}

// foreignCase is a record with the revisions that it is about, and the next one, nil if there
// is none.
type foreignCase struct {
	*deploy.Rollout
	seen *foreignWorkload
	life *foreignLife
	of   []*foreignRollout
	next *foreignRollout
}

// checkStart checks what a record says of its start. last is the record before it.
func (e *foreignEvidence) checkStart(f foreignCase, i int, last *deploy.Rollout) {
	r := f.of[0]
	switch before := f.life.rollouts[max(0, i-1)]; {
	case !r.begun.After(e.launched):
		e.falsely(f.Rollout, "it began before the cluster was watched")
	case f.Images != imageOf(r.image):
		e.falsely(f.Rollout, "the images are %s, want %s", f.Images, imageOf(r.image))
	case i == 0 && f.ImagesBefore != "":
		e.falsely(f.Rollout, "the images before it are %s, there were none", f.ImagesBefore)
	case i > 0 && f.ImagesBefore != imageOf(before.image) && (e.due(f.life, before) || last != nil && last.Revision == before.revision):
		e.falsely(f.Rollout, "the images before it are %q, want %s", f.ImagesBefore, imageOf(before.image))
	}
	if f.Phase != deploy.RolloutSuperseded { // the cluster does not show when a revision was reused
		// Nor when a workload was resumed; the start is then when the agent saw that.
		late := f.StartedAt.After(r.begun.Add(oracleLag)) && (f.life.paused.IsZero() || f.life.first(r) || e.handled(r.begun, f.StartedAt))
		if late || f.life.paused.IsZero() && f.StartedAt.Before(f.life.written(r).Add(-2*time.Second)) {
			e.falsely(f.Rollout, "it started at %s, want %s", f.StartedAt.Format(time.StampMilli), r.begun.Format(time.StampMilli))
		}
	}
	awake, away := e.was(r.made, f.CreatedAt)
	if awake && f.FoundLate || away && !f.FoundLate {
		e.falsely(f.Rollout, "found late: %t; it began at %s", f.FoundLate, r.begun.Format(time.StampMilli))
	}
	if awake {
		e.awake = append(e.awake, max(0, f.CreatedAt.Sub(r.begun)))
	}
}

// was reports whether the agent certainly watched at a time until it recorded what happened, or
// certainly did not watch. The time may be late, even after the end of the agent that had recorded it.
func (e *foreignEvidence) was(at, recorded time.Time) (awake, away bool) {
	for i, up := range e.ups {
		awake = awake || !up.from.IsZero() && at.After(up.from.Add(oracleLag)) && (up.to.IsZero() || recorded.Before(up.to))
		away = away || !up.to.IsZero() && at.After(up.to) && recorded.After(up.to) && i+1 < len(e.ups) && at.Before(e.ups[i+1].launched)
	}
	return awake, away
}

// first reports whether r was the first rollout of its template.
func (l *foreignLife) first(r *foreignRollout) bool {
	return slices.IndexFunc(l.rollouts, func(o *foreignRollout) bool { return o.image == r.image }) == slices.Index(l.rollouts, r)
}

// checkEnd checks the end of a record.
func (e *foreignEvidence) checkEnd(f foreignCase) {
	r := f.of[len(f.of)-1]
	sound, alive := soundImage(imageOf(r.image)), f.life.deleted.IsZero()
	switch f.Phase {
	case deploy.RolloutComplete:
		e.checkComplete(f)
	case deploy.RolloutFailed, deploy.RolloutTimedOut:
		if sound {
			e.falsely(f.Rollout, "nothing made it fail")
		}
	case deploy.RolloutSuperseded:
		if f.next == nil && alive || !f.life.changed(r, f.CompletedAt.Add(oracleLag)) && !f.followed(f.CompletedAt.Add(oracleLag)) {
			e.falsely(f.Rollout, "no other revision followed")
		} else if f.next != nil && !r.shown.IsZero() && e.handled(r.shown, earliest(r.changed, f.next.made)) {
			e.falsely(f.Rollout, "the API showed it complete since %s", r.shown.Format(time.StampMilli))
		}
	case deploy.RolloutGone:
		if alive || f.life.deleting.After(f.CompletedAt.Add(oracleLag)) {
			e.falsely(f.Rollout, "the workload was there")
		}
	default:
		if f.Phase.Terminal() {
			e.falsely(f.Rollout, "nothing called for that end")
		} else if f.next != nil || sound || !alive || f.Workload.Kind == "Deployment" { // others have no deadline
			e.lost = append(e.lost, fmt.Sprintf("the end of %s of %s, revision %d, which is %s (%s)", f.ID, f.Workload.Name, f.Revision, f.Phase, f.Reason))
		}
	}
}

// followed reports whether the next revision began before a time.
func (f foreignCase) followed(by time.Time) bool { return f.next != nil && f.next.made.Before(by) }

// checkComplete checks by the pods that a complete rollout had ended, of one of the revisions
// of the record.
func (e *foreignEvidence) checkComplete(f foreignCase) {
	at, problem := f.CompletedAt, ""
	for _, r := range f.of {
		problem = ""
		if p := f.seen.leftover(&r.epoch, at); p != nil {
			problem = fmt.Sprintf("a pod of %s was still there, created at %s, ended at %s", p.image, p.created, p.ended)
		} else if ready, need := f.seen.ready(&r.epoch, at), f.need(r, at); ready < need {
			problem = fmt.Sprintf("%d pods were ready, %d wanted", ready, need)
		}
		if problem == "" {
			break
		}
	}
	switch {
	case problem != "":
		e.falsely(f.Rollout, "%s", problem)
	case f.next != nil && at.After(f.next.begun.Add(oracleLag)):
		e.falsely(f.Rollout, "the next revision was there since %s", f.next.begun.Format(time.StampMilli))
	case !f.life.deleted.IsZero() && at.After(f.life.deleted.Add(oracleLag)):
		e.falsely(f.Rollout, "the workload was being deleted since %s", f.life.deleted.Format(time.StampMilli))
	}
}

// need returns how many pods had to be ready: of a Deployment the fewest that were wanted
// since the start, of other kinds those wanted at that time.
func (f foreignCase) need(r *foreignRollout, at time.Time) int32 {
	if f.Workload.Kind == "Deployment" {
		return r.need(at)
	}
	least := r.wanted[len(r.wanted)-1].replicas
	for i, w := range r.wanted {
		if !w.since.After(at.Add(oracleLag)) && (i+1 == len(r.wanted) || r.wanted[i+1].since.After(at.Add(-oracleLag))) {
			least = min(least, w.replicas)
		}
	}
	return least
}

// compareEvents checks that each record was announced once, start before end, and that a
// start names the rollout that it interrupts.
func (e *foreignEvidence) compareEvents() {
	at := map[string]int{}
	for i, event := range e.events {
		key := event.kind + " " + event.id
		rec := e.byID[event.id]
		_, again := at[key]
		switch {
		case again:
			e.duplicate = append(e.duplicate, key)
		case rec == nil:
			e.wrong = append(e.wrong, key+": there is no such record")
		case event.late != rec.FoundLate || event.kind == string(deploy.EventRolloutEnded) && event.phase != rec.Phase:
			e.falsely(rec, "%s says %s, found late: %t", event.kind, event.phase, event.late)
		case event.kind == string(deploy.EventRolloutStarted):
			if want, known := e.interrupted(rec); known && event.interrupts != want {
				e.falsely(rec, "the start says that it interrupts %q, want %q", event.interrupts, want)
			}
		}
		if !again {
			at[key] = i
		}
	}
	for _, r := range e.records {
		start, started := at[string(deploy.EventRolloutStarted)+" "+r.ID]
		end, ended := at[string(deploy.EventRolloutEnded)+" "+r.ID]
		switch {
		case !started || r.Phase.Terminal() && !ended:
			e.lost = append(e.lost, fmt.Sprintf("notifications of %s, %s: started %t, ended %t", r.ID, r.Phase, started, ended))
		case ended && !r.Phase.Terminal() || ended && end < start:
			e.falsely(&r, "its end was announced, its start later or never")
		}
	}
}

// interrupted returns the ID of the record that a rollout interrupts: the one of the revision
// before, unless that had ended by itself. It is not known of one that was superseded long ago.
func (e *foreignEvidence) interrupted(rec *deploy.Rollout) (id string, known bool) {
	l := e.seen[rec.Workload.Name].life(rec.UID)
	if at := slices.IndexFunc(l.rollouts, func(r *foreignRollout) bool { return e.record(l, r) == rec }); at > 0 && e.record(l, l.rollouts[at-1]) == nil {
		return "", false // that of the revision before is missing, or belongs to an earlier one
	}
	var before *deploy.Rollout
	for i, r := range e.records {
		if r.UID == rec.UID && r.Revision < rec.Revision && (before == nil || r.Revision > before.Revision) {
			before = &e.records[i]
		}
	}
	if before == nil || before.Phase != deploy.RolloutSuperseded {
		return "", true
	}
	return before.ID, rec.StartedAt.Sub(before.CompletedAt) < time.Minute
}
