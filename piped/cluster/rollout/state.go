package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// state is what a snapshot says about the rollout of the awaited template.
type state struct {
	observed bool // the workload's controller has seen the change
	complete bool
	reason   string // why complete
	settled  bool   // the template's rollout had ended before, whatever scaling and crashes did since
	unsure   bool   // whether it had cannot be said before the controllers have seen the change
	line     string // where the rollout is

	target    *Revision // Deployments only: the ReplicaSet of the awaited template
	newest    bool      // whether it carries the highest revision
	wanted    int32     // new pods wanted at this moment
	ready     int32     // pods of the template
	available int32
	served    int32 // pods of the template that are surely available
	old       int32 // pods of other templates
	oldWanted int32 // of those, how many are still wanted
	refused   string
}

func (e *evaluation) state() state {
	switch e.w.Kind {
	case KindStatefulSet:
		return e.statefulSet()
	case KindDaemonSet:
		return e.daemonSet()
	default:
		return e.deployment()
	}
}

// need returns how many of the wanted pods must be available.
func (e *evaluation) need(wanted int32) int32 {
	if wanted == 0 {
		return 0
	}
	return max(1, int32((int64(wanted)*int64(e.p.ReadyThreshold)+99)/100))
}

// needScaled is need of a Deployment, of the fewer of two wanted counts: an autoscaler
// that scales up neither delays nor fails a template already proven. Only ReplicaSets
// tell new pods from old ones whatever their number, so other kinds need what is
// wanted now: a smaller number would be reached with a pod missing.
func (e *evaluation) needScaled(atStart int32) int32 {
	if e.w.Replicas == 0 {
		return 0
	}
	return max(1, e.need(min(atStart, e.w.Replicas)))
}

// deployment reads the state from the ReplicaSets the Deployment controls.
func (e *evaluation) deployment() state {
	s := state{observed: e.w.ObservedGeneration >= e.rec.Generation}
	target, others, newest := e.split()
	s.target, s.newest = target, newest
	for _, r := range others {
		s.old += r.Total
		s.oldWanted += r.Desired
	}
	if target != nil {
		s.wanted, s.ready, s.available, s.served = target.Desired, target.Ready, target.Available, target.Available
	}
	alone := target != nil && newest && s.old == 0 && s.oldWanted == 0
	seen := alone && !slices.ContainsFunc(e.s.Revisions, func(r Revision) bool { return r.OwnerUID == e.w.UID && r.ObservedGeneration < r.Generation })
	ended := alone && e.saysEnded(target)
	current := e.w.ObservedGeneration >= e.w.Generation
	s.settled = seen && (s.available >= e.needScaled(e.rec.ReplicasBefore) || e.rec.ProvenBefore || ended && current)
	s.unsure = alone && !s.settled && (!seen || ended && !current)
	s.complete = seen && s.observed && e.scaledDown(target) &&
		s.available >= e.needScaled(e.rec.DesiredAtStart) && (!e.p.Strict || e.strictlyComplete()) &&
		(!e.p.WaitTermination || e.w.Terminating == 0)
	if s.complete {
		s.reason = fmt.Sprintf("%d of %d pods available in ReplicaSet %s, %s", min(s.available, e.w.Replicas), e.w.Replicas, target.Name, e.oldPods())
		if s.available < e.w.Replicas && e.rec.DesiredAtStart < e.w.Replicas {
			s.reason += fmt.Sprintf(" (%d wanted when it was applied; it does not wait for pods that scaling added since)", e.rec.DesiredAtStart)
		}
	}
	s.refused = e.refused(target)
	s.line = e.deploymentLine(s)
	return s
}

// oldPods says at the end what is left of the old pods. None is wanted then.
func (e *evaluation) oldPods() string {
	switch {
	case e.w.Terminating > 0:
		return count(e.w.Terminating, "old pod") + " still stopping"
	case e.w.Uncounted:
		return "no old pod wanted"
	}
	return "no old pod left"
}

// scaledDown reports whether a Deployment of which no pod is wanted has none left. The
// ReplicaSet follows the Deployment later, and its status later still. Of a Deployment
// with pods, those that are too many prove the template as well as the others.
func (e *evaluation) scaledDown(target *Revision) bool {
	return e.w.Replicas > 0 || target.Desired == 0 && target.Total == 0
}

// split finds the ReplicaSet of the awaited template as the Deployment
// controller does (the oldest of those with an equal template), the others, and
// whether it carries the highest revision.
func (e *evaluation) split() (target *Revision, others []Revision, newest bool) {
	owned := make([]Revision, 0, len(e.s.Revisions))
	for _, r := range e.s.Revisions {
		if r.OwnerUID == e.w.UID {
			owned = append(owned, r)
		}
	}
	slices.SortFunc(owned, func(a, b Revision) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	highest := int64(0)
	for i := range owned {
		highest = max(highest, owned[i].Number)
		if target == nil && !owned[i].Deleting && owned[i].Template.Digest == e.waitsFor() {
			target = &owned[i]
			continue
		}
		others = append(others, owned[i])
	}
	return target, others, target != nil && target.Number == highest
}

// saysEnded reports whether the Deployment's condition tells that the rollout of
// the target ended once. Without progress it is left as the rollout before made
// it, but its message names that one's ReplicaSet.
func (e *evaluation) saysEnded(target *Revision) bool {
	c := e.w.Progressing
	return c.Reason == "NewReplicaSetAvailable" && e.w.Updated == e.w.Total && strings.Contains(c.Message, strconv.Quote(target.Name))
}

// strictlyComplete is the Deployment controller's own rule.
func (e *evaluation) strictlyComplete() bool {
	w := e.w
	return w.ObservedGeneration >= w.Generation && w.Updated == w.Replicas && w.Total == w.Replicas && w.Available == w.Replicas
}

// refused says why pods or the ReplicaSet cannot be created; "" when they can.
func (e *evaluation) refused(target *Revision) string {
	switch {
	case target == nil && e.w.Progressing.Reason == "ReplicaSetCreateError" && e.w.ObservedGeneration >= e.rec.Generation:
		return "the ReplicaSet cannot be created: " + e.w.Progressing.Message
	case target != nil && target.Failure.Status == "True":
		return "pods cannot be created: " + target.Failure.Message
	}
	return ""
}

// awaitsController reports whether the workload's controller has still to act on the
// change. On a template that keeps changing it acts again and again.
func (e *evaluation) awaitsController(s state) bool { return !s.observed && !e.keepsChanging() }

// awaitsStop reports whether a Recreate has not made its new ReplicaSet because old pods
// run or are stopping.
func (e *evaluation) awaitsStop(s state) bool {
	return e.w.Kind == KindDeployment && s.observed && s.target == nil && e.w.Strategy == "Recreate" && e.stopping(s) > 0
}

// stopping returns how many old pods run or are stopping. Older clusters do not count the
// latter; then only the pods tell.
func (e *evaluation) stopping(s state) int32 { return max(s.old+e.w.Terminating, e.s.Stopping) }

func (e *evaluation) deploymentLine(s state) string {
	switch {
	case e.awaitsController(s):
		return "waiting for the Deployment controller to act on the change"
	case e.awaitsStop(s):
		return fmt.Sprintf("waiting for %s to stop", count(e.stopping(s), "old pod"))
	case s.target == nil && !e.keepsChanging():
		return "waiting for the new ReplicaSet"
	}
	line := fmt.Sprintf("%d of %s available", min(s.available, e.w.Replicas), count(e.w.Replicas, "new pod"))
	if s.target != nil && s.target.Total > e.w.Replicas {
		line += fmt.Sprintf(", %d more than wanted", s.target.Total-e.w.Replicas)
	}
	if s.ready > s.available && e.w.MinReady > 0 {
		line += fmt.Sprintf(", %d ready and counting %s of minReadySeconds", s.ready-s.available, e.w.MinReady)
	}
	if old := max(s.old, s.oldWanted); old > 0 {
		line += fmt.Sprintf(", %s left", count(old, "old pod"))
	}
	if e.p.WaitTermination && e.w.Terminating > 0 {
		line += fmt.Sprintf(", %s still stopping", count(e.w.Terminating, "old pod"))
	}
	return line
}

// statefulSet reads the state from the status alone: generation rises on spec
// changes only, so an observed status is about this template.
func (e *evaluation) statefulSet() state {
	w := e.w
	s := state{
		observed: w.ObservedGeneration >= w.Generation, wanted: w.Replicas,
		ready: w.Ready, available: w.Available, old: max(0, w.Total-w.Updated),
	}
	if s.observed {
		e.rec.TargetName = w.UpdateRevision
		s.served = min(w.Updated, w.Available-s.old) // of the available pods at most s.old are old
	}
	s.complete = s.observed && e.statefulSetRolled(w.Replicas) && w.Available >= e.need(w.Replicas)
	before := min(e.rec.ReplicasBefore, w.Replicas) // pods that the apply added are not those of a rollout
	s.settled = s.complete || s.observed && e.statefulSetRolled(before) && w.Total >= before && (w.Available >= e.need(w.Total) || e.rec.ProvenBefore)
	s.unsure = !s.observed
	fresh := max(0, w.Replicas-w.Partition)
	switch {
	case e.awaitsController(s):
		s.line = "waiting for the StatefulSet controller to act on the change"
	default:
		s.line = fmt.Sprintf("%d of %s updated, %d of %d available", min(w.Updated, fresh), count(fresh, "pod"), min(w.Available, w.Replicas), w.Replicas)
	}
	s.reason = fmt.Sprintf("%s updated, %d of %d available", count(min(w.Updated, w.Replicas), "pod"), min(w.Available, w.Replicas), w.Replicas)
	if w.Partition > 0 {
		s.reason += fmt.Sprintf(" (partition %d)", w.Partition)
	}
	return s
}

// statefulSetRolled reports whether all of the wanted pods that the partition does not
// keep back are of the newest revision.
func (e *evaluation) statefulSetRolled(wanted int32) bool {
	w := e.w
	if e.p.Strict && (w.Available < w.Replicas || w.Total != w.Replicas) {
		return false
	}
	if w.Updated < wanted-w.Partition || w.Total-w.Updated > w.Partition {
		return false
	}
	// With every pod wanted ready, the controller itself calls the update ended.
	return w.Partition > 0 || e.p.ReadyThreshold < 100 || w.CurrentRevision == w.UpdateRevision
}

// daemonSet reads the state from the status alone, as statefulSet.
func (e *evaluation) daemonSet() state {
	w := e.w
	s := state{
		observed: w.ObservedGeneration >= w.Generation, wanted: w.Replicas,
		ready: w.Ready, available: w.Available, old: max(0, w.Replicas-w.Updated),
	}
	if n, err := strconv.ParseInt(w.UpdateRevision, 10, 64); err == nil && s.observed {
		e.rec.Revision = n
	}
	if s.observed {
		s.served = min(w.Updated, w.Available-s.old) // of the available pods at most s.old are old
	}
	rolled := s.observed && w.Updated >= w.Replicas
	s.complete = rolled && w.Available >= e.need(w.Replicas) && (!e.p.Strict || w.Available >= w.Replicas)
	s.settled = s.complete || rolled && e.rec.ProvenBefore
	s.unsure = !s.observed
	s.reason = fmt.Sprintf("updated on %s, %d available", count(w.Updated, "node"), w.Available)
	s.line = fmt.Sprintf("updated on %d of %s, %d available", w.Updated, count(w.Replicas, "node"), w.Available)
	if e.awaitsController(s) {
		s.line = "waiting for the DaemonSet controller to act on the change"
	}
	return s
}

// count says n things.
func count(n int32, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
