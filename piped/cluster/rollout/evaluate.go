package rollout

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Snapshot is the observed state of one workload.
type Snapshot struct {
	Workload  *Workload  // nil: not found
	Revisions []Revision // the ReplicaSets of a Deployment; those that it does not control are ignored
	Confirmed bool       // read from the API server, not from a cache
	// NamespaceGone reports that the workload is missing or being deleted, and so is its
	// namespace.
	NamespaceGone bool
	// Skew is how far the cluster's clock is ahead of the caller's.
	Skew time.Duration

	// Troubles are those of the workload's pods. Without PodsRead they are unknown.
	Troubles []Trouble
	PodsRead bool
	// Stopping is the number of terminating pods. StoppingUntil is when the last of them
	// should be gone by the caller's clock: its grace period plus slowStop.
	Stopping      int32
	StoppingUntil time.Time
}

// Policy holds the rules that an application can configure and the time limits of the rules.
// A zero value means the default.
type Policy struct {
	// ReadyThreshold is the percentage of the wanted pods that must be available,
	// rounded up and at least one. Default 100.
	ReadyThreshold int
	// Strict applies the Deployment controller's own rule: all pods that are wanted at
	// present are new and available.
	Strict bool
	// NoFailFast disables failing early on image, configuration and crash errors.
	NoFailFast bool
	// WaitTermination waits until the old pods of a Deployment are gone, not only
	// terminating.
	WaitTermination bool

	// FieldManager is the agent's field manager. Default "piped".
	FieldManager string
	// DefaultDeadline is the longest time without progress for a workload without a progress
	// deadline. Default 600 s.
	DefaultDeadline time.Duration
	// WatchdogGrace is added to the progress deadline. Default 10 s.
	WatchdogGrace time.Duration
	// FailureGrace is how long the creation of pods or ReplicaSets may fail before the
	// rollout fails. Default 60 s.
	FailureGrace time.Duration
	// FailFastAfter is how long pods may have image, configuration or crash errors without
	// progress before the rollout fails. Default 90 s.
	FailFastAfter time.Duration
	// PodsAfter is the time without progress after which pods are read, to explain the
	// reason. Default 5 s.
	PodsAfter time.Duration
	// OutageGrace is how long controllers and nodes have to act after an outage before a
	// rollout may fail. Default 30 s.
	OutageGrace time.Duration

	// Since is when watching began or, if Returned, when the last outage ended. No deadline
	// fails a rollout until a grace period after Since. Away, if set, explains why the
	// controllers do not act at present; no rollout fails then. Wait sets all three.
	Since    time.Time
	Returned bool
	Away     string
}

func (p Policy) withDefaults() Policy {
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&p.DefaultDeadline, 600*time.Second)
	def(&p.WatchdogGrace, 10*time.Second)
	def(&p.FailureGrace, 60*time.Second)
	def(&p.FailFastAfter, 90*time.Second)
	def(&p.PodsAfter, 5*time.Second)
	def(&p.OutageGrace, 30*time.Second)
	if p.ReadyThreshold <= 0 || p.ReadyThreshold > 100 {
		p.ReadyThreshold = 100
	}
	if p.FieldManager == "" {
		p.FieldManager = ownManager
	}
	return p
}

// Verdict is the result of Evaluate.
type Verdict struct {
	Record  deploy.Rollout // the record to store
	Changed bool           // whether Record differs from the given one
	Mark    bool           // whether this verdict made the record terminal

	// NeedConfirm requests a confirmed snapshot, on which the verdict can become final. Ends
	// is the phase in which the rollout ends if that snapshot agrees, "" if it does not end.
	NeedConfirm bool
	Ends        deploy.RolloutPhase
	// NeedPods requests a snapshot with pods, which can change or explain the verdict.
	NeedPods bool
	// WakeAfter is the time after which the verdict can change without a new snapshot; 0
	// means never.
	WakeAfter time.Duration
	// Progress describes the state of the rollout in one line; "" if s does not show it.
	Progress string
	// Note is a line to log once, before Progress; "" for none.
	Note string
}

// EndedAt returns when the end in v was first observed: at cachedAt if the verdict on the
// cached snapshot was the same end, otherwise at confirmedAt. The verdicts differ, for
// example, while the cache does not contain a new workload yet.
func (v Verdict) EndedAt(cached Verdict, cachedAt, confirmedAt time.Time) time.Time {
	if cached.Ends == v.Record.Phase {
		return cachedAt
	}
	return confirmedAt
}

// Evaluate returns the verdict on rollout rec for snapshot s at time now. It is a pure
// function. A terminal record is returned unchanged. A record becomes terminal only on a
// confirmed snapshot.
func Evaluate(rec deploy.Rollout, s Snapshot, p Policy, now time.Time) Verdict {
	if rec.Phase.Terminal() {
		return Verdict{Record: rec, Progress: rec.Reason}
	}
	e := &evaluation{rec: rec, s: s, p: p.withDefaults(), now: now, w: s.Workload}
	e.decide()
	if e.v.NeedConfirm {
		e.v.Mark = false
	}
	e.v.Changed = e.rec != rec
	if e.v.Changed && !e.v.Mark {
		e.rec.UpdatedAt = now
	}
	e.v.Record = e.rec
	return e.v
}

// evaluation is the state of one call of Evaluate.
type evaluation struct {
	rec deploy.Rollout
	s   Snapshot
	p   Policy
	now time.Time
	w   *Workload
	v   Verdict

	undecided bool   // it is not known yet whether the apply causes a rollout
	line      string // the progress of the rollout and the problems that delay it
}

// decide applies the rules in order, until one ends the rollout or excludes the rules after
// it.
func (e *evaluation) decide() {
	switch {
	case e.gone(), e.unapplied(), e.older():
		return
	}
	e.rec.ReplicasAfter = e.w.Replicas
	switch {
	case e.rec.External() && e.w.Paused: // the template may change again before a revision is made of it
		e.held(state{})
		return
	case e.otherTemplate(), e.nothingRolls():
		return
	}
	e.number()
	state := e.state()
	if t := state.target; t != nil {
		e.rec.TargetUID, e.rec.TargetName = t.UID, t.Name
		if state.newest { // a reused ReplicaSet keeps its old number for a moment
			e.rec.Revision = t.Number
		}
	}
	switch {
	case e.unchanged(state), e.held(state):
		return
	}
	e.progress(state)
	switch {
	case state.complete && e.adopted(state.target):
		e.end(deploy.RolloutNoRollout, "%s: pod template unchanged, created again over its ReplicaSet %s", e.name(), state.target.Name)
		return
	case state.complete:
		e.end(deploy.RolloutComplete, "%s: %s%s", e.name(), state.reason, e.restarts())
		return
	}
	e.failures(state)
}

// number sets the number of an external rollout of a StatefulSet or DaemonSet whose restart it
// follows, if the snapshot has the revisions.
func (e *evaluation) number() {
	if !e.rec.External() || e.w.Kind == KindDeployment {
		return
	}
	for _, r := range e.s.Revisions {
		if r.OwnerUID == e.w.UID && r.Template.Digest == e.waitsFor() {
			e.rec.Revision = max(e.rec.Revision, r.Number)
		}
	}
}

// end makes the record terminal on a confirmed snapshot, and otherwise requests one. It
// always returns true.
func (e *evaluation) end(phase deploy.RolloutPhase, format string, args ...any) bool {
	reason := fmt.Sprintf(format, args...)
	e.v.Progress = reason
	e.v.WakeAfter = 0
	if !e.s.Confirmed {
		e.v.NeedConfirm, e.v.Ends = true, phase
		return true
	}
	e.rec.Phase, e.rec.Reason = phase, reason
	e.rec.CompletedAt, e.rec.UpdatedAt = e.now, e.now
	e.v.Mark = true
	return true
}

// wait sets the progress line, and enters a phase that is not terminal.
func (e *evaluation) wait(phase deploy.RolloutPhase, line string) {
	e.v.Progress = e.name() + ": " + line
	if e.rec.Phase != phase {
		e.rec.Phase, e.rec.Reason = phase, e.v.Progress
	}
}

// gone ends a rollout whose workload was deleted, or deleted and created again. It returns
// true if no further rule applies, also when the workload does not exist before the apply.
func (e *evaluation) gone() bool {
	switch {
	case e.w == nil && e.rec.Phase == deploy.RolloutIntent:
		e.v.Progress = e.name() + ": not applied yet"
		return true
	case e.w == nil:
		return e.end(deploy.RolloutGone, "%s was deleted while it rolled out%s", e.rec.Workload, e.because())
	case e.rec.Phase == deploy.RolloutIntent:
		return false
	case e.w.UID != e.rec.UID:
		return e.end(deploy.RolloutGone, "%s was deleted and created again while it rolled out", e.rec.Workload)
	case e.w.Deleting:
		return e.end(deploy.RolloutGone, "%s is being deleted%s", e.rec.Workload, e.because())
	}
	return false
}

// because returns the cause of a deletion as the end of a message, "" if unknown.
func (e *evaluation) because() string {
	if e.s.NamespaceGone {
		return ": its namespace was deleted"
	}
	return ""
}

// unapplied returns true, so that no further rule applies, while the apply is not known to
// have happened. If the live template is the intended one and was not live before, the apply
// did happen and the agent stopped before it stored that. unapplied then turns the record
// into an applied one, on a confirmed snapshot.
func (e *evaluation) unapplied() bool {
	if e.rec.Phase != deploy.RolloutIntent {
		return false
	}
	intended := e.rec.IntentDigest != "" && e.rec.IntentDigest != e.rec.LiveBefore &&
		e.w.Template.Digest == e.rec.IntentDigest && !e.w.Deleting
	switch {
	case !intended:
		e.v.Progress = e.name() + ": not applied yet"
		return true
	case !e.s.Confirmed:
		e.v.NeedConfirm = true
		e.v.Progress = e.name() + ": applied before the agent restarted"
		return true
	}
	e.rec = Applied(e.rec, *e.w, e.now)
	return false
}

// older reports whether the snapshot is from before the apply. It requests another
// evaluation after 1 s.
func (e *evaluation) older() bool {
	if e.w.Generation >= e.rec.Generation {
		return false
	}
	e.v.WakeAfter = time.Second
	return true
}

// nothingRolls ends the rollout of a workload with update strategy OnDelete, whose
// controller replaces no pod on its own.
func (e *evaluation) nothingRolls() bool {
	if e.w.Strategy != "OnDelete" {
		return false
	}
	return e.end(deploy.RolloutNoRollout, "%s: update strategy OnDelete, pods change only when they are deleted", e.name())
}

// unchanged decides once after the apply what to do if the template was live before. If the
// earlier rollout of the template has completed, the record ends as NoRollout. Otherwise the
// record joins that rollout. unchanged returns true if no further rule applies.
func (e *evaluation) unchanged(state state) bool {
	if e.rec.Phase != deploy.RolloutApplied {
		return false
	}
	same := e.rec.LiveBefore != "" && e.rec.LiveBefore == e.rec.TemplateDigest && e.rec.FollowedDigest == ""
	switch {
	case !same:
		return false
	case state.unsure:
		e.undecided = true
		return false
	case state.rolledOut && e.rec.ReplicasBefore != e.rec.DesiredAtStart && e.w.Kind != KindDaemonSet:
		return e.end(deploy.RolloutNoRollout, "%s: pod template unchanged, scaled from %d to %d", e.name(), e.rec.ReplicasBefore, e.rec.DesiredAtStart)
	case state.rolledOut:
		return e.end(deploy.RolloutNoRollout, "%s: pod template unchanged", e.name())
	case !e.s.Confirmed:
		e.v.NeedConfirm = true
		e.v.Progress = e.name() + ": " + state.line
		return true
	}
	return false
}

// adopted reports whether a Deployment that the apply created took over an existing
// ReplicaSet: an earlier Deployment was deleted without its ReplicaSet and pods. The margin
// of 2 s covers the resolution of the timestamps, which is 1 s.
func (e *evaluation) adopted(target *Revision) bool {
	return target != nil && e.rec.LiveBefore == "" && !target.Created.IsZero() && target.Created.Add(2*time.Second).Before(e.w.Created)
}

// held suspends the rollout of a paused Deployment: no deadline runs until it is resumed. If
// Git sets spec.paused, the rollout ends as NoRollout. held returns true if no further rule
// applies.
func (e *evaluation) held(state state) bool {
	if !e.w.Paused {
		at := e.w.resumedAt()
		unseen := !at.IsZero() && !at.Equal(e.rec.ResumedAt)
		if unseen {
			e.rec.ResumedAt = at
		}
		if unseen || e.rec.Phase == deploy.RolloutHeld {
			e.restartClock()
		}
		return false
	}
	if e.w.OwnPaused && !e.rec.External() {
		e.rec.PausedInGit = e.s.Confirmed
		return e.end(deploy.RolloutNoRollout, "%s: paused by Git: nothing rolls until it is resumed", e.name())
	}
	e.restartClockAt(e.rec.LastProgress)
	e.wait(deploy.RolloutHeld, fmt.Sprintf("paused, waiting until it is resumed (kubectl rollout resume deployment/%s -n %s)", e.name(), e.rec.Workload.Namespace))
	return true
}

// restartClock restarts the deadlines now and forgets the counts of progress.
func (e *evaluation) restartClock() { e.restartClockAt(e.now) }

// restartClockAt is restartClock with deadlines that count from t.
func (e *evaluation) restartClockAt(t time.Time) {
	e.rec.LastProgress = t
	reset(&e.rec.FailingSince)
	reset(&e.rec.TroubleSince)
	e.rec.SeenReady, e.rec.SeenAvailable, e.rec.SeenOld = 0, 0, unseen
}

// reset clears t. It leaves a time that is zero already unchanged: replacing it could change
// its location, and the record would compare as changed.
func reset(t *time.Time) {
	if !t.IsZero() {
		*t = time.Time{}
	}
}

// name returns the workload's name for messages.
func (e *evaluation) name() string { return e.rec.Workload.Name }
