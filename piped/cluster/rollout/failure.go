package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// progress updates the phase and the progress line, and records progress since the last
// evaluation. It compares counts with the best ones seen, so that pods that become ready and
// crash in turn are not progress. After a scale-down it lowers the best counts to what can
// still be reached. It counts old pods that are wanted but missing, for example because of a
// quota, as present.
func (e *evaluation) progress(s state) {
	if e.w.Kind == KindDaemonSet && s.observed && e.rec.DesiredAtStart == 0 {
		e.rec.DesiredAtStart = e.w.Replicas
	}
	phase := deploy.RolloutProgressing
	if e.undecided {
		phase = e.rec.Phase
	}
	e.wait(phase, s.line)
	if !s.observed {
		return
	}
	seenReady, seenAvailable := min(e.rec.SeenReady, s.wanted), min(e.rec.SeenAvailable, s.wanted)
	old, seenOld := max(s.old, s.oldWanted), max(e.rec.SeenOld, s.oldWanted)
	e.rec.Served = e.rec.Served || s.served > 0
	stopped := e.stopped(s)
	moved := stopped || s.ready > seenReady || s.available > seenAvailable || old < seenOld
	if moved && !e.stuckWhileFollowed() {
		e.rec.LastProgress, e.rec.Progress = e.now, e.v.Progress
	}
	if old < seenOld { // its replacement has yet to become ready, which will be progress
		seenReady, seenAvailable = 0, 0
	}
	e.rec.SeenReady, e.rec.SeenAvailable = max(seenReady, s.ready), max(seenAvailable, s.available)
	e.rec.SeenOld = min(seenOld, old)
}

// stopped reports whether an old pod that a Recreate waits for has stopped since the last
// evaluation, or is stopping within its grace period. The counts of old pods do not show
// this, because they exclude terminating pods.
func (e *evaluation) stopped(s state) bool {
	if !e.awaitsStop(s) {
		e.rec.SeenStopping = 0
		return false
	}
	fewer := e.w.Terminating < e.rec.SeenStopping
	e.rec.SeenStopping = e.w.Terminating
	return fewer || e.s.PodsRead && e.now.Before(e.s.StoppingUntil)
}

// failures applies the rules by which a rollout fails, and schedules the next evaluation.
// While the controllers are away, no rule applies.
func (e *evaluation) failures(s state) {
	e.line = s.line + e.restarts()
	for _, detail := range []string{s.refused, describe(e.s.Troubles)} {
		if detail != "" {
			e.line += "; " + detail
		}
	}
	e.v.Progress = e.name() + ": " + e.line
	if e.p.Away != "" {
		e.v.Progress += "; " + e.p.Away
		return
	}
	switch {
	case e.deadlineExceeded(s):
		e.fail(deploy.RolloutFailed, "the progress deadline of %s is exceeded", e.w.Deadline)
	case e.stalled(s):
	case e.beingRefused(s):
	case e.failingFast():
	default:
		e.askForPods()
	}
}

// deadlineExceeded reports whether the reason ProgressDeadlineExceeded is about this
// rollout. The Deployment controller leaves the reason in place when an old ReplicaSet is
// reused, and may even set it then. It therefore counts only if it was set a whole deadline
// after the apply (or the followed restart). For a joined rollout it counts if it was set
// after the apply.
//
// The controller's clock runs on during an outage. After an outage the reason therefore
// counts only if the agent's own clock, which is suspended, has expired too.
func (e *evaluation) deadlineExceeded(s state) bool {
	c := e.w.Progressing
	if c.Reason != "ProgressDeadlineExceeded" || c.Status == "True" || !s.observed {
		return false
	}
	if s.target == nil && e.w.Strategy == "Recreate" { // stopping pods are no progress for the controller
		return false
	}
	since := latest(serverAppliedAt(e.rec), e.rec.FollowedAt)
	about := c.Updated.Unix() >= since.Add(e.w.Deadline).Unix()-1 // times have a resolution of 1 s
	if e.joined() {
		about = c.Updated.Unix() > since.Unix()
	}
	if !about || !e.due(e.calm()) {
		return false
	}
	return !e.p.Returned || e.due(e.rec.LastProgress.Add(e.w.Deadline))
}

// calm returns the earliest time at which a status set by the controllers may fail a
// rollout.
func (e *evaluation) calm() time.Time {
	if e.p.Returned {
		return e.p.Since.Add(e.p.OutageGrace)
	}
	return e.p.Since.Add(e.p.WatchdogGrace)
}

// afterOutage returns calm if there was an outage, otherwise the zero time.
func (e *evaluation) afterOutage() time.Time {
	if e.p.Returned {
		return e.calm()
	}
	return time.Time{}
}

// joined reports whether the apply did not change the template: its rollout had begun
// before.
func (e *evaluation) joined() bool {
	return e.rec.LiveBefore != "" && e.rec.LiveBefore == e.rec.TemplateDigest && e.rec.FollowedDigest == ""
}

// stalled fails a rollout without progress for the deadline and WatchdogGrace, independently
// of the controller's conditions. The phase is TimedOut if the controller has not observed
// the change, otherwise Failed.
func (e *evaluation) stalled(s state) bool {
	deadline := e.w.Deadline
	if deadline == 0 {
		deadline = e.p.DefaultDeadline + e.w.MinReady
	}
	since := e.rec.LastProgress
	due := latest(since.Add(deadline+e.p.WatchdogGrace), e.calm())
	if !e.due(due) {
		return false
	}
	changed := latest(since, e.rec.FollowedAt.Add(-e.s.Skew)) // the time of the unobserved change
	if !s.observed && !e.now.Before(changed.Add(e.p.WatchdogGrace)) {
		return e.fail(deploy.RolloutTimedOut, "the %s controller has not acted on the change for %s (is kube-controller-manager running?)",
			e.w.Kind, e.now.Sub(changed).Round(time.Second))
	}
	return e.fail(deploy.RolloutFailed, "no progress for %s", e.now.Sub(since).Round(time.Second))
}

// beingRefused fails a rollout whose pods or ReplicaSet could not be created for
// FailureGrace, without progress in that time.
func (e *evaluation) beingRefused(s state) bool {
	refused := s.refused != ""
	if e.w.Kind != KindDeployment { // only events show it, there is no condition
		if !e.s.PodsRead {
			return false
		}
		refused = e.w.Total < e.w.Replicas && slices.ContainsFunc(e.s.Troubles, func(t Trouble) bool { return t.Refused })
	}
	if !refused {
		reset(&e.rec.FailingSince)
		return false
	}
	if e.rec.FailingSince.IsZero() {
		e.rec.FailingSince = e.now
	}
	if !e.due(latest(latest(e.rec.FailingSince, e.rec.LastProgress).Add(e.p.FailureGrace), e.afterOutage())) {
		return false
	}
	return e.fail(deploy.RolloutFailed, "nothing new can be created")
}

// failingFast fails a rollout without progress for FailFastAfter if its new pods have had
// Hard troubles for at least a third of that time.
func (e *evaluation) failingFast() bool {
	if e.p.NoFailFast || !e.s.PodsRead {
		return false
	}
	if !slices.ContainsFunc(e.s.Troubles, func(t Trouble) bool { return t.Hard }) {
		reset(&e.rec.TroubleSince)
		return false
	}
	if e.rec.TroubleSince.IsZero() {
		e.rec.TroubleSince = e.now
	}
	due := latest(e.rec.LastProgress.Add(e.p.FailFastAfter), e.rec.TroubleSince.Add(e.p.FailFastAfter/3), e.afterOutage())
	if !e.due(due) {
		return false
	}
	return e.fail(deploy.RolloutFailed, "new pods do not start")
}

// askForPods requests the pods if there was no progress for PodsAfter, and again after each
// further PodsAfter.
func (e *evaluation) askForPods() {
	if e.s.PodsRead {
		e.wakeAt(e.now.Add(e.p.PodsAfter)) // read them again
		return
	}
	e.v.NeedPods = e.due(e.rec.LastProgress.Add(e.p.PodsAfter))
}

// fail ends the rollout with a reason that includes its progress and the troubles of its
// pods. It requests the pods if they were not read. It always returns true.
func (e *evaluation) fail(phase deploy.RolloutPhase, format string, args ...any) bool {
	e.v.NeedPods = !e.s.PodsRead
	return e.end(phase, "%s: %s: %s", e.name(), fmt.Sprintf(format, args...), e.line)
}

// due reports whether t has come, and otherwise schedules an evaluation at t.
func (e *evaluation) due(t time.Time) bool {
	if !e.now.Before(t) {
		return true
	}
	e.wakeAt(t)
	return false
}

// wakeAt schedules the next evaluation at t, unless an earlier one is scheduled.
func (e *evaluation) wakeAt(t time.Time) {
	if after := t.Sub(e.now); e.v.WakeAfter == 0 || after < e.v.WakeAfter {
		e.v.WakeAfter = after
	}
}
