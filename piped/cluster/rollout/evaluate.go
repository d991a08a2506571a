package rollout

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Snapshot is what was observed of one workload.
type Snapshot struct {
	Workload  *Workload  // nil: not found
	Revisions []Revision // the ReplicaSets a Deployment controls; others are ignored
	Confirmed bool       // read from the API server, not from a cache
	// NamespaceGone: the workload is not found, or being deleted, and so is its namespace.
	NamespaceGone bool
	// Skew is how far the cluster's clock is ahead of the caller's.
	Skew time.Duration

	// Troubles are those of the workload's pods; PodsRead tells none from not
	// asked.
	Troubles []Trouble
	PodsRead bool
	// Stopping is how many of the pods are stopping, and StoppingUntil when the grace
	// period of the last of them ends, by the caller's clock.
	Stopping      int32
	StoppingUntil time.Time
}

// Policy holds the rules an application may set and the times of the rules; zero
// values mean the defaults.
type Policy struct {
	// ReadyThreshold is the percentage of the wanted pods that must be available,
	// rounded up and at least one. Default 100.
	ReadyThreshold int
	// Strict asks for the Deployment controller's own rule: every pod wanted at
	// that moment is new and available.
	Strict bool
	// NoFailFast turns off failing early on image, configuration and crash errors.
	NoFailFast bool
	// WaitTermination waits until old pods are gone, not only told to go.
	WaitTermination bool

	// FieldManager is the agent's own. Default "piped".
	FieldManager string
	// DefaultDeadline is how long a workload without a progress deadline may make
	// no progress. Default 600 s.
	DefaultDeadline time.Duration
	// WatchdogGrace is granted on top of the progress deadline. Default 10 s.
	WatchdogGrace time.Duration
	// FailureGrace is how long pods or ReplicaSets may be refused. Default 60 s.
	FailureGrace time.Duration
	// FailFastAfter is how long pods may fail on image, configuration or crash
	// errors without progress. Default 90 s.
	FailFastAfter time.Duration
	// PodsAfter is how long there must be no progress before pods are read, to
	// say why. Default 5 s.
	PodsAfter time.Duration
	// OutageGrace is how long controllers and nodes have to act after an outage before a
	// rollout may fail. Default 30 s.
	OutageGrace time.Duration

	// Since is when watching began, or the cluster was back after an outage, and Returned
	// says that it was the latter: no deadline fails a rollout before a grace from then.
	// Away says why the controllers do not act; then no rollout fails at all. Wait sets
	// all three.
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

// Verdict is what Evaluate found.
type Verdict struct {
	Record  deploy.Rollout // the record as it should be stored
	Changed bool           // whether Record differs from the one given
	Mark    bool           // whether the record became terminal by this verdict

	// NeedConfirm: the answer could be final on a confirmed snapshot. Ends is the phase in
	// which the rollout ends if that snapshot says the same; "" where it does not end.
	NeedConfirm bool
	Ends        deploy.RolloutPhase
	// NeedPods: the answer could be another, or say more, with the pods read.
	NeedPods bool
	// WakeAfter is when time alone can change the answer; 0: never.
	WakeAfter time.Duration
	// Progress says in one line where the rollout is; "" when s does not tell.
	Progress string
	// Note is a line to be logged once, before Progress; "" for none.
	Note string
}

// EndedAt returns when the end that v marks was shown first: at the time of the cached
// snapshot, if its verdict was that end, else at that of the confirmed one. A cache that
// does not hold a new workload yet shows another end than the cluster.
func (v Verdict) EndedAt(cached Verdict, cachedAt, confirmedAt time.Time) time.Time {
	if cached.Ends == v.Record.Phase {
		return cachedAt
	}
	return confirmedAt
}

// Evaluate decides what s means for the rollout rec at the time now. It is pure.
// Terminal records are returned as they are. A record becomes terminal only on
// a confirmed snapshot.
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

// evaluation is one run of Evaluate.
type evaluation struct {
	rec deploy.Rollout
	s   Snapshot
	p   Policy
	now time.Time
	w   *Workload
	v   Verdict

	undecided bool   // whether anything rolls cannot be said yet
	line      string // where the rollout is, with what hinders it
}

// decide goes through the rules in order; the first that ends the rollout, or
// forbids to look further, wins.
func (e *evaluation) decide() {
	switch {
	case e.gone(), e.unapplied(), e.older():
		return
	}
	e.rec.ReplicasAfter = e.w.Replicas
	switch {
	case e.otherTemplate(), e.nothingRolls():
		return
	}
	state := e.state()
	if t := state.target; t != nil {
		e.rec.TargetUID, e.rec.TargetName = t.UID, t.Name
		if state.newest { // one that is used again keeps its old number for a moment
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

// end makes the record terminal, if the snapshot is confirmed.
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

// wait says where the rollout is, and enters phase.
func (e *evaluation) wait(phase deploy.RolloutPhase, line string) {
	e.v.Progress = e.name() + ": " + line
	if e.rec.Phase != phase {
		e.rec.Phase, e.rec.Reason = phase, e.v.Progress
	}
}

// gone ends a rollout whose workload was deleted, or deleted and made anew.
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

// because says why the workload is gone, if that is known.
func (e *evaluation) because() string {
	if e.s.NamespaceGone {
		return ": its namespace was deleted"
	}
	return ""
}

// unapplied stops at a record whose apply is not known to have happened. If the
// live template is the intended one and was not there before, it did happen:
// the agent died between apply and record, and the apply is adopted.
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

// older reports whether the snapshot shows the workload before our apply.
func (e *evaluation) older() bool {
	if e.w.Generation >= e.rec.Generation {
		return false
	}
	e.v.WakeAfter = time.Second
	return true
}

// nothingRolls ends the rollout of a workload that replaces pods only when
// someone deletes them.
func (e *evaluation) nothingRolls() bool {
	if e.w.Strategy != "OnDelete" {
		return false
	}
	return e.end(deploy.RolloutNoRollout, "%s: update strategy OnDelete, pods change only when they are deleted", e.name())
}

// unchanged decides, once after the apply, whether the template was the live one
// already: then there is nothing to wait for, unless the live rollout had not
// ended, which is then joined.
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
	case state.settled && e.rec.ReplicasBefore != e.rec.DesiredAtStart && e.w.Kind != KindDaemonSet:
		return e.end(deploy.RolloutNoRollout, "%s: pod template unchanged, scaled from %d to %d", e.name(), e.rec.ReplicasBefore, e.rec.DesiredAtStart)
	case state.settled:
		return e.end(deploy.RolloutNoRollout, "%s: pod template unchanged", e.name())
	case !e.s.Confirmed:
		e.v.NeedConfirm = true
		e.v.Progress = e.name() + ": " + state.line
		return true
	}
	return false
}

// adopted reports whether a Deployment that the apply created found its ReplicaSet: the
// one from before was deleted without its pods. Times have a grain of 1 s.
func (e *evaluation) adopted(target *Revision) bool {
	return target != nil && e.rec.LiveBefore == "" && !target.Created.IsZero() && target.Created.Add(2*time.Second).Before(e.w.Created)
}

// held keeps a Deployment that somebody paused waiting with its clocks stopped. One that
// Git pauses is as the commit wants it.
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

func (e *evaluation) restartClock() { e.restartClockAt(e.now) }

func (e *evaluation) restartClockAt(t time.Time) {
	e.rec.LastProgress = t
	reset(&e.rec.FailingSince)
	reset(&e.rec.TroubleSince)
	e.rec.SeenReady, e.rec.SeenAvailable, e.rec.SeenOld = 0, 0, unseen
}

// reset clears t, and leaves a stored zero time as it is.
func reset(t *time.Time) {
	if !t.IsZero() {
		*t = time.Time{}
	}
}

// name is how a person calls the workload.
func (e *evaluation) name() string { return e.rec.Workload.Name }
