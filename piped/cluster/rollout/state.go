package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// state is the progress of the awaited template's rollout in a snapshot.
type state struct {
	observed  bool // the controller has observed the change
	complete  bool
	reason    string // why it is complete
	rolledOut bool   // the template's rollout has completed once, whatever scaling and crashes did since
	unsure    bool   // rolledOut is unknown until the controllers have observed the change
	line      string // a description of the progress

	target    *Revision // Deployments only: the ReplicaSet of the awaited template
	newest    bool      // target carries the highest revision
	wanted    int32     // new pods wanted at present
	ready     int32     // pods of the template
	available int32
	served    int32 // pods of the template that are certainly available
	old       int32 // pods of other templates
	oldWanted int32 // old pods that are still wanted
	refused   string
}

// state returns the state that the snapshot shows for the kind of the workload.
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

// need returns how many of the wanted pods must be available: ReadyThreshold percent,
// rounded up.
func (e *evaluation) need(wanted int32) int32 {
	if wanted == 0 {
		return 0
	}
	return max(1, int32((int64(wanted)*int64(e.p.ReadyThreshold)+99)/100))
}

// needScaled is need of the smaller of atStart and the replicas wanted at present: an
// autoscaler that scales up neither delays nor fails a template that has proven itself. It
// applies to Deployments only, whose ReplicaSets count new pods separately. For other kinds
// a smaller need could be met while a pod is missing.
func (e *evaluation) needScaled(atStart int32) int32 {
	if e.w.Replicas == 0 {
		return 0
	}
	return max(1, e.need(min(atStart, e.w.Replicas)))
}

// deployment derives the state from the ReplicaSets that the Deployment controls.
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
	ended := alone && e.conditionEnded(target)
	current := e.w.ObservedGeneration >= e.w.Generation
	s.rolledOut = seen && (s.available >= e.needScaled(e.rec.ReplicasBefore) || e.rec.ProvenBefore || ended && current)
	s.unsure = alone && !s.rolledOut && (!seen || ended && !current)
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

// oldPods describes the remaining old pods of a complete rollout, none of which is wanted.
func (e *evaluation) oldPods() string {
	switch {
	case e.w.Terminating > 0:
		return count(e.w.Terminating, "old pod") + " still stopping"
	case e.w.Uncounted:
		return "no old pod wanted"
	}
	return "no old pod left"
}

// scaledDown reports whether no pod of a Deployment with 0 replicas is left. The ReplicaSet
// is scaled after the Deployment, and its status follows later still. It returns true for
// other Deployments: surplus pods of the template do not delay a rollout.
func (e *evaluation) scaledDown(target *Revision) bool {
	return e.w.Replicas > 0 || target.Desired == 0 && target.Total == 0
}

// split returns the ReplicaSet of the awaited template, the other ReplicaSets of the
// Deployment, and whether target carries the highest revision. Like the Deployment
// controller, it takes the oldest ReplicaSet with an equal template. target is nil if there
// is none.
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

// conditionEnded reports whether the condition Progressing shows that the rollout of target
// has completed once. A rollout without progress leaves the condition of the previous one,
// but its message names the previous ReplicaSet.
func (e *evaluation) conditionEnded(target *Revision) bool {
	c := e.w.Progressing
	return c.Reason == "NewReplicaSetAvailable" && e.w.Updated == e.w.Total && strings.Contains(c.Message, strconv.Quote(target.Name))
}

// strictlyComplete reports whether the rollout is complete by the Deployment controller's
// own rule.
func (e *evaluation) strictlyComplete() bool {
	w := e.w
	return w.ObservedGeneration >= w.Generation && w.Updated == w.Replicas && w.Total == w.Replicas && w.Available == w.Replicas
}

// refused returns why pods or the ReplicaSet cannot be created, "" if they can.
func (e *evaluation) refused(target *Revision) string {
	switch {
	case target == nil && e.w.Progressing.Reason == "ReplicaSetCreateError" && e.w.ObservedGeneration >= e.rec.Generation:
		return "the ReplicaSet cannot be created: " + e.w.Progressing.Message
	case target != nil && target.Failure.Status == "True":
		return "pods cannot be created: " + target.Failure.Message
	}
	return ""
}

// awaitsController reports whether the controller has not observed the change yet. It
// returns false for a constantly changing template, which always has an unobserved change.
func (e *evaluation) awaitsController(s state) bool { return !s.observed && !e.keepsChanging() }

// awaitsStop reports whether a Recreate has no new ReplicaSet yet because old pods run or
// are terminating.
func (e *evaluation) awaitsStop(s state) bool {
	return e.w.Kind == KindDeployment && s.observed && s.target == nil && e.w.Strategy == "Recreate" && e.stopping(s) > 0
}

// stopping returns how many old pods run or are terminating. The status of older clusters
// does not count terminating pods; then the pods that were read count.
func (e *evaluation) stopping(s state) int32 { return max(s.old+e.w.Terminating, e.s.Stopping) }

// deploymentLine describes the progress of a Deployment's rollout.
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

// statefulSet derives the state from the status alone. The generation changes only with the
// spec, so an observed status concerns this template.
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
	before := min(e.rec.ReplicasBefore, w.Replicas) // pods that the apply added belong to a scaling
	s.rolledOut = s.complete || s.observed && e.statefulSetRolled(before) && w.Total >= before && (w.Available >= e.need(w.Total) || e.rec.ProvenBefore)
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

// statefulSetRolled reports whether all wanted pods, except those that the partition
// excludes, have the newest revision.
func (e *evaluation) statefulSetRolled(wanted int32) bool {
	w := e.w
	if e.p.Strict && (w.Available < w.Replicas || w.Total != w.Replicas) {
		return false
	}
	if w.Updated < wanted-w.Partition || w.Total-w.Updated > w.Partition {
		return false
	}
	// If all pods must be available, the controller itself marks the end of the update.
	return w.Partition > 0 || e.p.ReadyThreshold < 100 || w.CurrentRevision == w.UpdateRevision
}

// daemonSet derives the state from the status alone, like statefulSet.
func (e *evaluation) daemonSet() state {
	w := e.w
	s := state{
		observed: w.ObservedGeneration >= w.Generation, wanted: w.Replicas,
		ready: w.Ready, available: w.Available, old: max(0, w.Replicas-w.Updated),
	}
	if n, err := strconv.ParseInt(w.UpdateRevision, 10, 64); err == nil && s.observed && !e.rec.External() {
		e.rec.Revision = n // an external rollout has the number of its ControllerRevision
	}
	if s.observed {
		s.served = min(w.Updated, w.Available-s.old) // of the available pods at most s.old are old
	}
	rolled := s.observed && w.Updated >= w.Replicas
	s.complete = rolled && w.Available >= e.need(w.Replicas) && (!e.p.Strict || w.Available >= w.Replicas)
	s.rolledOut = s.complete || rolled && e.rec.ProvenBefore
	s.unsure = !s.observed
	s.reason = fmt.Sprintf("updated on %s, %d available", count(w.Updated, "node"), w.Available)
	s.line = fmt.Sprintf("updated on %d of %s, %d available", w.Updated, count(w.Replicas, "node"), w.Available)
	if e.awaitsController(s) {
		s.line = "waiting for the DaemonSet controller to act on the change"
	}
	return s
}

// count returns n with its noun, such as "1 pod" or "2 pods".
func count(n int32, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
