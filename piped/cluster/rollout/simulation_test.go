package rollout

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
)

// simulation is a Deployment with its controllers. Each controller lags at random: the
// API shows a late state, and the agent's cache a later one still.
type simulation struct {
	t      *rapid.T
	w      Workload
	sets   []*simulatedSet
	number int64
	surge  int32
	shown  []Snapshot // states that the API has shown, the newest last
	ended  int64      // the last revision whose rollout ended, regardless of later scaling
}

// simulatedSet is a ReplicaSet and the number of pods that really exist.
type simulatedSet struct {
	Revision
	pods, up int32
}

func newSimulation(t *rapid.T) *simulation {
	s := &simulation{t: t, surge: rapid.Int32Range(0, 2).Draw(t, "surge")}
	s.w = Workload{
		Kind: KindDeployment, Name: "web", UID: "u", Generation: 1, Template: templates[0], TemplateManager: "piped",
		Replicas: rapid.Int32Range(1, 4).Draw(t, "replicas"), Strategy: rapid.SampledFrom([]string{"RollingUpdate", "Recreate"}).Draw(t, "strategy"), Deadline: time.Hour,
	}
	return s
}

// converge runs the controllers until nothing changes any more.
func (s *simulation) converge() {
	for range 60 {
		s.control()
		for _, set := range s.sets {
			s.replicate(set)
			s.start(set)
			s.count(set)
		}
	}
	s.show()
}

// apply gives the Deployment a template.
func (s *simulation) apply(template Template) {
	if s.w.Template != template {
		s.w.Template = template
		s.w.Generation++
	}
}

func (s *simulation) scaleTo(replicas int32) {
	if s.w.Replicas != replicas {
		s.w.Replicas = replicas
		s.w.Generation++
	}
}

// control is one reconciliation of the Deployment controller: it finds or creates the
// ReplicaSet of the template, scales, and writes the status last.
func (s *simulation) control() {
	target := s.target()
	old, fresh, total := int32(0), int32(0), int32(0)
	for _, set := range s.sets {
		total += set.Total
		if set != target {
			old += set.Desired
		} else {
			fresh = set.Available
		}
	}
	running := total - target.Total
	for _, set := range s.sets {
		switch {
		case set == target:
		case s.w.Strategy == "Recreate" || fresh+s.surge >= s.w.Replicas || fresh > 0 && s.surge == 0:
			s.want(set, 0)
		case set.Desired > 0 && old > s.w.Replicas-fresh:
			s.want(set, set.Desired-1)
			old--
		}
	}
	if s.w.Strategy != "Recreate" || running == 0 && old == 0 {
		s.want(target, s.w.Replicas)
	}
	s.report(target, total, fresh)
}

// report writes the Deployment's status. The controller does not evaluate progress while
// only pods of the template are counted and the condition says complete, even if that was
// for another template. A condition with the same reason keeps its message.
func (s *simulation) report(target *simulatedSet, total, available int32) {
	was, c := s.w, &s.w.Progressing
	s.w.ObservedGeneration = s.w.Generation
	s.w.Total, s.w.Updated, s.w.Ready, s.w.Available = total, target.Total, available, available
	switch {
	case total == target.Total && c.Reason == "NewReplicaSetAvailable":
	case total == s.w.Replicas && target.Total == total && available == total:
		*c = Condition{Status: "True", Reason: "NewReplicaSetAvailable", Message: fmt.Sprintf("ReplicaSet %q has successfully progressed.", target.Name)}
		if s.alone() == nil {
			s.ended = target.Number
		}
	case target.Total > was.Updated || total-target.Total < was.Total-was.Updated || available > was.Available:
		*c = Condition{Status: "True", Reason: "ReplicaSetUpdated"}
	}
}

// target returns the ReplicaSet of the template with the highest revision, whether new or
// reused.
func (s *simulation) target() *simulatedSet {
	for _, set := range s.sets {
		if set.Template == s.w.Template {
			if set.Number < s.number {
				s.number++
				set.Number = s.number
			}
			return set
		}
	}
	s.number++
	name := fmt.Sprintf("web-%d", len(s.sets))
	set := &simulatedSet{Revision: Revision{
		UID: name, Name: name, OwnerUID: "u", Number: s.number, Template: s.w.Template, Generation: 1, Created: epoch.Add(time.Duration(len(s.sets)) * time.Second),
	}}
	s.sets = append(s.sets, set)
	s.w.Progressing = Condition{Status: "True", Reason: "NewReplicaSetCreated"}
	return set
}

func (s *simulation) want(set *simulatedSet, pods int32) {
	if set.Desired != pods {
		set.Desired = pods
		set.Generation++
	}
}

// replicate creates or deletes pods; count publishes their number later.
func (s *simulation) replicate(set *simulatedSet) {
	set.pods = set.Desired
	set.up = min(set.up, set.pods)
}

// start lets one pod become available.
func (s *simulation) start(set *simulatedSet) { set.up = min(set.up+1, set.pods) }

// count writes a ReplicaSet's status.
func (s *simulation) count(set *simulatedSet) {
	set.ObservedGeneration = set.Generation
	set.Total, set.Ready, set.Available = set.pods, set.up, set.up
}

// show returns what the API shows now.
func (s *simulation) show() Snapshot {
	w := s.w
	now := Snapshot{Workload: &w}
	for _, set := range s.sets {
		now.Revisions = append(now.Revisions, set.Revision)
	}
	s.shown = append(s.shown, now)
	return now
}

// anything runs one random step.
func (s *simulation) anything() {
	switch action := rapid.IntRange(0, 9).Draw(s.t, "action"); {
	case action < 3:
		s.control()
	case action == 3:
		s.scaleTo(rapid.Int32Range(0, 4).Draw(s.t, "scale"))
	case len(s.sets) == 0:
	default:
		set := s.sets[rapid.IntRange(0, len(s.sets)-1).Draw(s.t, "set")]
		switch {
		case action < 6:
			s.replicate(set)
			if rapid.Bool().Draw(s.t, "counted") {
				s.count(set)
			}
		case action < 8:
			s.count(set)
		default:
			s.start(set)
		}
	}
}

// alone reports whether no pod of another template runs.
func (s *simulation) alone() error {
	for _, set := range s.sets {
		if set.Template != s.w.Template && set.pods > 0 {
			return fmt.Errorf("%d pods of %s run", set.pods, set.Name)
		}
	}
	return nil
}

// proven checks that enough pods of the template are available, and that no pod runs when
// zero replicas are wanted.
func (s *simulation) proven(rec deploy.Rollout) error {
	need := min(rec.DesiredAtStart, s.w.Replicas)
	for _, set := range s.sets {
		if set.Template == s.w.Template && set.up < min(need, set.Desired) {
			return fmt.Errorf("%d pods are available, want %d", set.up, need)
		}
		if rec.Phase == deploy.RolloutComplete && s.w.Replicas == 0 && set.pods > 0 {
			return fmt.Errorf("%d pods run, want none", set.pods)
		}
	}
	return nil
}

// TestLaggingControllersEndNothingTooEarly: the template changes back and forth before
// its rollouts end, controllers and caches lag, and replicas change. The rollout of the
// last template must end once, and not while pods of other templates run.
func TestLaggingControllersEndNothingTooEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		if rapid.Bool().Draw(t, "live") {
			s.converge()
		}
		for range rapid.IntRange(0, 2).Draw(t, "earlier") { // earlier rollouts, which have not finished
			s.apply(rapid.SampledFrom([]Template{templates[0], templates[1], templates[3]}).Draw(t, "template"))
			for range rapid.IntRange(0, 8).Draw(t, "steps") {
				s.anything()
			}
		}
		before := s.w
		s.apply(rapid.SampledFrom([]Template{templates[0], templates[1], templates[3]}).Draw(t, "own"))
		rec := deploy.Rollout{ID: "r", DeploymentID: "d", Workload: deploy.ObjectRef{Kind: KindDeployment, Namespace: "shop", Name: "web"}}
		rec = Applied(Intended(rec, &before, ""), s.w, epoch)
		now := epoch
		for range rapid.IntRange(0, 40).Draw(t, "evaluations") {
			s.anything()
			now = now.Add(time.Second)
			seen := s.show()
			if stale := rapid.IntRange(0, 3).Draw(t, "stale"); stale > 0 { // a stale cache
				seen = s.shown[max(0, len(s.shown)-1-stale)]
			} else {
				seen.Confirmed = true
			}
			if s.evaluate(&rec, seen, now) {
				return
			}
		}
		s.converge()
		seen := s.show()
		seen.Confirmed = true
		if !s.evaluate(&rec, seen, now) {
			t.Fatalf("the rollout has not ended although the controllers have finished: %s: %s", rec.Phase, rec.Reason)
		}
	})
}

// evaluate calls Evaluate once and checks an end.
func (s *simulation) evaluate(rec *deploy.Rollout, seen Snapshot, now time.Time) (ended bool) {
	*rec = Evaluate(*rec, seen, Policy{NoFailFast: true}, now).Record
	if !rec.Phase.Terminal() {
		return false
	}
	err := s.alone()
	if err == nil && !(rec.Phase == deploy.RolloutNoRollout && s.ended == s.number) {
		err = s.proven(*rec)
	}
	if err != nil || rec.Phase != deploy.RolloutComplete && rec.Phase != deploy.RolloutNoRollout {
		s.t.Fatalf("%s: %s: %v\nseen %+v", rec.Phase, rec.Reason, err, seen)
	}
	return true
}
