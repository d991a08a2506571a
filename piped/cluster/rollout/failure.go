package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// progress records whatever moved forward since the last progress. Counts are
// held against the best seen, so that pods which become ready and crash in turn
// are no progress, but scaling corrects what can be reached. Old pods count as
// long as they are wanted, so that those a quota keeps away are not taken for
// stopped ones.
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
	if old < seenOld { // the pod in its place has still to become ready, which is progress then
		seenReady, seenAvailable = 0, 0
	}
	e.rec.SeenReady, e.rec.SeenAvailable = max(seenReady, s.ready), max(seenAvailable, s.available)
	e.rec.SeenOld = min(seenOld, old)
}

// stopped reports whether old pods that a Recreate waits for have stopped, or are
// stopping within their grace period. They are not wanted any more, so they do not count
// as old pods.
func (e *evaluation) stopped(s state) bool {
	if !e.awaitsStop(s) {
		e.rec.SeenStopping = 0
		return false
	}
	fewer := e.w.Terminating < e.rec.SeenStopping
	e.rec.SeenStopping = e.w.Terminating
	return fewer || e.s.PodsRead && e.now.Before(e.s.StoppingUntil)
}

// failures applies the rules by which a rollout fails, and finds when the next
// of them could.
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

// deadlineExceeded reports whether the Deployment controller's verdict is about
// this rollout. The controller does not take it back when an old ReplicaSet is
// used again, and may even issue it then, so it counts only if the whole
// deadline has passed since our apply. Its clock runs on in an outage: what it finds
// afterwards counts only when our own, which does not, agrees.
func (e *evaluation) deadlineExceeded(s state) bool {
	c := e.w.Progressing
	if c.Reason != "ProgressDeadlineExceeded" || c.Status == "True" || !s.observed {
		return false
	}
	if s.target == nil && e.w.Strategy == "Recreate" { // to stop is no progress for the controller
		return false
	}
	since := latest(serverAppliedAt(e.rec), e.rec.FollowedAt)
	about := c.Updated.Unix() >= since.Add(e.w.Deadline).Unix()-1 // times have a grain of 1 s
	if e.joined() {
		about = c.Updated.Unix() > since.Unix()
	}
	if !about || !e.due(e.calm()) {
		return false
	}
	return !e.p.Returned || e.due(e.rec.LastProgress.Add(e.w.Deadline))
}

// calm returns when what the controllers say may fail a rollout at the earliest.
func (e *evaluation) calm() time.Time {
	if e.p.Returned {
		return e.p.Since.Add(e.p.OutageGrace)
	}
	return e.p.Since.Add(e.p.WatchdogGrace)
}

// afterOutage is calm where only an outage matters.
func (e *evaluation) afterOutage() time.Time {
	if e.p.Returned {
		return e.calm()
	}
	return time.Time{}
}

// joined reports whether the rollout had begun before our apply.
func (e *evaluation) joined() bool {
	return e.rec.LiveBefore != "" && e.rec.LiveBefore == e.rec.TemplateDigest && e.rec.FollowedDigest == ""
}

// stalled is our own watchdog: no progress for the deadline and a grace.
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
	changed := latest(since, e.rec.FollowedAt.Add(-e.s.Skew)) // what has not been acted on
	if !s.observed && !e.now.Before(changed.Add(e.p.WatchdogGrace)) {
		return e.fail(deploy.RolloutTimedOut, "the %s controller has not acted on the change for %s (is kube-controller-manager running?)",
			e.w.Kind, e.now.Sub(changed).Round(time.Second))
	}
	return e.fail(deploy.RolloutFailed, "no progress for %s", e.now.Sub(since).Round(time.Second))
}

// beingRefused fails a rollout whose pods or ReplicaSet have been refused for
// the grace, without progress in that time.
func (e *evaluation) beingRefused(s state) bool {
	refused := s.refused != ""
	if e.w.Kind != KindDeployment { // no condition says so, only events do
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

// failingFast fails a rollout without progress whose new pods fail in a way
// that does not heal, and have done so for a while.
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

// askForPods asks for the pods while there is no progress.
func (e *evaluation) askForPods() {
	if e.s.PodsRead {
		e.wakeAt(e.now.Add(e.p.PodsAfter)) // look again
		return
	}
	e.v.NeedPods = e.due(e.rec.LastProgress.Add(e.p.PodsAfter))
}

// fail ends the rollout with where it stood and what its pods say.
func (e *evaluation) fail(phase deploy.RolloutPhase, format string, args ...any) bool {
	e.v.NeedPods = !e.s.PodsRead
	return e.end(phase, "%s: %s: %s", e.name(), fmt.Sprintf(format, args...), e.line)
}

// due reports whether t has come, and has the caller woken when it does.
func (e *evaluation) due(t time.Time) bool {
	if !e.now.Before(t) {
		return true
	}
	e.wakeAt(t)
	return false
}

func (e *evaluation) wakeAt(t time.Time) {
	if after := t.Sub(e.now); e.v.WakeAfter == 0 || after < e.v.WakeAfter {
		e.v.WakeAfter = after
	}
}
