package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the pods of rollouts.
const (
	podDots         = 60 // pods of a group that are drawn one by one
	podApplications = 5  // applications whose pods a view reads
	podRollouts     = 3  // rollouts of a stage or an application that are shown with their pods
)

// podState is the state of a pod during a rollout.
type podState int

const (
	podReady podState = iota
	podStarting
	podFailing
	podTerminating
	podStates // their number
)

// word returns the state in words.
func (s podState) word() string {
	return [podStates]string{"ready", "starting", "failing", "terminating"}[s]
}

// role returns the colour of the state. Its shape differs, too.
func (s podState) role() role { return [podStates]role{roleOK, roleActive, roleBad, roleMuted}[s] }

// podStateOf returns the state of pods of a health.
func podStateOf(h modelv1.Health, deleting bool) podState {
	switch {
	case deleting:
		return podTerminating
	case h == modelv1.Health_HEALTH_HEALTHY:
		return podReady
	case h == modelv1.Health_HEALTH_DEGRADED:
		return podFailing
	}
	return podStarting
}

// podDot is a pod as a dot.
type podDot struct {
	state podState
	title string
	path  string // of the object; "" if the caller may not open it
}

// podGroup is the pods of a workload that are new, or old, or all of them.
type podGroup struct {
	kind   string // "new ", "old " or ""
	counts [podStates]int32
	dots   []podDot // nil: they are too many to be drawn one by one
	folded bool     // the live state counts some pods only
}

// total returns the number of pods.
func (g podGroup) total() (n int32) {
	for _, count := range g.counts {
		n += count
	}
	return n
}

// title names the group with its number of pods, such as `3 new pods`.
func (g podGroup) title() string {
	if g.total() == 0 {
		return "no " + g.kind + "pods yet"
	}
	return plural(g.total(), g.kind+"pod", g.kind+"pods")
}

// intro is the title as it stands before the numbers of pods by state.
func (g podGroup) intro() string {
	if g.total() == 0 {
		return sentence(g.title())
	}
	return g.title() + ":"
}

// podCount is the number of pods in a state.
type podCount struct {
	state podState
	text  string
}

// states returns the numbers of pods by state, without zeros, as a list with commas.
func (g podGroup) states() (out []podCount) {
	for s := range podStates {
		if n := g.counts[s]; n > 0 {
			out = append(out, podCount{s, fmt.Sprintf("%d %s", n, s.word())})
		}
	}
	for i := range len(out) - 1 {
		out[i].text += ","
	}
	return out
}

// bar returns the shares of the states as they are drawn beside one another.
func (g podGroup) bar() (out []segment) {
	at, total := int32(0), float64(g.total())
	for s := range podStates {
		if n := g.counts[s]; n > 0 {
			out = append(out, segment{s.word(), percent(float64(at) / total), percent(float64(n) / total)})
			at += n
		}
	}
	return out
}

// add adds the pods among some objects.
func (g *podGroup) add(objects []*modelv1.LiveObject, folds []*modelv1.LiveFold, link func(*modelv1.ObjectRef) string) {
	for _, o := range objects {
		if o.GetObject().GetKind() != "Pod" {
			continue
		}
		dot := podDot{state: podStateOf(o.Health, o.Deleting), path: link(o.Object)}
		dot.title = o.Object.GetName() + ": " + dot.state.word()
		if o.HealthReason != "" {
			dot.title += ", " + o.HealthReason
		}
		g.counts[dot.state]++
		g.dots = append(g.dots, dot)
	}
	for _, f := range folds {
		if f.Kind != "Pod" {
			continue
		}
		for _, c := range f.Counts {
			g.counts[podTerminating] += c.Deleting
			g.counts[podStateOf(c.Health, false)] += c.Count - c.Deleting
			g.folded = true
		}
	}
	if g.folded || g.total() > podDots {
		g.dots = nil
	}
}

// podGroups returns the pods of a rollout from the live state of its workload. Only pods of a
// Deployment have a known revision: that of their ReplicaSet.
func podGroups(r *modelv1.Rollout, workload *modelv1.LiveObject, link func(*modelv1.ObjectRef) string) []podGroup {
	apart := r.Kind == modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT && r.RevisionName != "" && workload.GetObject().GetKind() == "Deployment"
	all, fresh, old := podGroup{}, podGroup{kind: "new "}, podGroup{kind: "old "}
	all.add(workload.GetChildren(), workload.GetFolded(), link)
	for _, set := range workload.GetChildren() {
		into := &all
		switch {
		case set.GetObject().GetKind() != "ReplicaSet":
			continue
		case apart && set.Object.Name == r.RevisionName:
			into = &fresh
		case apart:
			into = &old
		}
		into.add(set.Children, set.Folded, link)
	}
	out := slices.DeleteFunc([]podGroup{fresh, old, all}, func(g podGroup) bool { return g.total() == 0 })
	if apart && fresh.total() == 0 {
		out = append([]podGroup{fresh}, out...)
	}
	return out
}

// rolloutPods are the pods of rollouts in progress, by the IDs of the rollouts.
type rolloutPods map[string][]podGroup

// inProgress reports whether a rollout has not ended.
func inProgress(r *modelv1.Rollout) bool {
	return r.Outcome == modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING || r.Outcome == modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD
}

// readPods reads the pods of those of some rollouts that are in progress: with one live state per
// application, for at most podApplications, in at most Config.LiveWait. What cannot be read in that time
// is left out: the rest of a view is as useful. A source has a podsRenewal.
func (v *visit) readPods(rollouts []*modelv1.Rollout) rolloutPods {
	ctx, cancel := context.WithTimeout(v.ctx, v.config.LiveWait)
	defer cancel()
	byApplication, order := map[string][]*modelv1.Rollout{}, []string{}
	for _, r := range rollouts {
		id := r.ApplicationId
		if !inProgress(r) || id == "" || byApplication[id] == nil && len(order) == podApplications || len(byApplication[id]) == maxPodLevels/2 {
			continue
		}
		if byApplication[id] == nil {
			order = append(order, id)
		}
		byApplication[id] = append(byApplication[id], r)
	}
	pods := rolloutPods{}
	v.podsOf = nil
	for _, id := range order {
		if !v.can("view", id) {
			continue
		}
		v.podsOf = append(v.podsOf, id)
		list := byApplication[id]
		state := v.readLive(ctx, v.podsRequest(id, list))
		for _, r := range list {
			if workload := objectIn(state, r.Workload); workload != nil {
				pods[r.Id] = podGroups(r, workload, v.podLink(r))
			}
		}
	}
	return pods
}

// podsRenewal is the base of sources whose parts have pods. It renews the live states that the parts
// have read, which the API then has for the next parts.
type podsRenewal struct {
	mu           sync.Mutex
	applications []string
}

// noted notes whose pods the parts have read.
func (p *podsRenewal) noted(v *visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applications, v.podsOf = v.podsOf, nil
}

// renew implements renewer.
func (p *podsRenewal) renew(v *visit) {
	p.mu.Lock()
	applications := p.applications
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(v.ctx, v.config.LiveWait)
	defer cancel()
	for _, id := range applications {
		v.readLive(ctx, &controlv1.GetLiveStateRequest{ApplicationId: id, LevelLimit: 1, MaxAgeMs: v.podsAge()})
	}
}

// podsAge returns how old pods may be, in milliseconds. A new view accepts what the API has just
// read for another one.
func (v *visit) podsAge() int64 { return max(v.age, liveAge).Milliseconds() }

// maxPodLevels limits the levels that a request unfolds, as the API does.
const maxPodLevels = 100

// podsRequest asks for the live state of an application with the pods of some rollouts.
func (v *visit) podsRequest(id string, rollouts []*modelv1.Rollout) *controlv1.GetLiveStateRequest {
	req := &controlv1.GetLiveStateRequest{ApplicationId: id, LevelLimit: podDots, MaxAgeMs: v.podsAge()}
	for _, r := range rollouts {
		req.Levels = append(req.Levels, &controlv1.LiveLevel{Under: r.Workload})
		if r.RevisionName != "" && r.GetWorkload().GetKind() == "Deployment" {
			set := &modelv1.ObjectRef{Cluster: r.Workload.Cluster, Group: "apps", Kind: "ReplicaSet", Namespace: r.Workload.Namespace, Name: r.RevisionName}
			req.Levels = append(req.Levels, &controlv1.LiveLevel{Under: set})
		}
	}
	return req
}

// objectIn returns an object of a live state; nil if it has none such.
func objectIn(state *modelv1.LiveState, ref *modelv1.ObjectRef) *modelv1.LiveObject {
	for _, o := range state.GetObjects() {
		if objectValue(o.GetObject()) == objectValue(ref) && o.GetObject().GetCluster() == ref.GetCluster() {
			return o
		}
	}
	return nil
}

// podLink returns a function that returns the address of a pod of a rollout; "" if the caller may
// not open it.
func (v *visit) podLink(r *modelv1.Rollout) func(*modelv1.ObjectRef) string {
	if !v.can("view-logs", r.ApplicationId) {
		return func(*modelv1.ObjectRef) string { return "" }
	}
	a := &applicationView{id: r.ApplicationId, app: &modelv1.Application{Name: r.ApplicationName}}
	return func(o *modelv1.ObjectRef) string { return objectPath(a, o, "") }
}

// podsFirst returns the rollouts that are shown with their pods, those in progress first, and how
// many are left out.
func podsFirst(rollouts []*modelv1.Rollout) (shown []*modelv1.Rollout, more int) {
	ended := func(r *modelv1.Rollout) bool { return !inProgress(r) }
	shown = slices.Concat(slices.DeleteFunc(slices.Clone(rollouts), ended), slices.DeleteFunc(slices.Clone(rollouts), inProgress))
	n := min(len(shown), podRollouts)
	return shown[:n], len(shown) - n
}

// podsChange returns the numbers of pods of a rollout, such as `2 → 3 pods`; "" if they are not
// known.
func podsChange(r *modelv1.Rollout) string {
	switch {
	case r.ToReplicas == 0 && r.FromReplicas == 0:
		return ""
	case r.ToReplicas == r.FromReplicas:
		return plural(r.ToReplicas, "pod", "pods")
	}
	return fmt.Sprintf("%d → %s", r.FromReplicas, plural(r.ToReplicas, "pod", "pods"))
}

// podsBeside returns podsChange unless the text beside it has these numbers, as that of a scaling.
func podsBeside(r *modelv1.Rollout) string {
	if r.Kind == modelv1.RolloutKind_ROLLOUT_KIND_SCALING {
		return ""
	}
	return podsChange(r)
}

// rolloutPodsText describes a rollout without dots in a line, such as
// `Deployment web: complete, 3 pods`.
func rolloutPodsText(r *modelv1.Rollout) string {
	text := r.GetWorkload().GetKind() + " " + r.GetWorkload().GetName() + ": " + strings.ToLower(rolloutMark(r.Outcome).word)
	if change := podsChange(r); change != "" {
		text += ", " + change
	}
	return text
}
