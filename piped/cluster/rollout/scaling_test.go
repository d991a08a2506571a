package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// scaled evaluates a workload against a Scale repeatedly and stores the results.
type scaled struct {
	scale  Scale
	now    time.Time
	writes []string
	stored deploy.Rollout // last
}

// evaluate calls Scale.Evaluate with w at a time d after the last call, until nothing
// has to be stored.
func (s *scaled) evaluate(d time.Duration, w *Workload) {
	s.now = s.now.Add(d)
	app := deploy.Rollout{Cluster: "c", ApplicationID: "a", Workload: deploy.ObjectRef{Group: "apps", Kind: KindDeployment, Namespace: "shop", Name: "web"}}
	for {
		next, rec := s.scale.Evaluate(app, w, ScalePolicy{}, s.now)
		s.scale = next
		if rec == nil {
			return
		}
		if rec.Version == 0 {
			rec.StartedAt = rec.AppliedAt
		}
		rec.Version++
		s.stored = *rec
		if !rec.Phase.Terminal() {
			s.scale.Open = &s.stored
		}
		ended := ""
		if rec.Phase.Terminal() {
			ended = fmt.Sprintf(" after %s", rec.CompletedAt.Sub(rec.StartedAt))
		}
		s.writes = append(s.writes, fmt.Sprintf("%d to %d by %s: %s%s", rec.ReplicasBefore, rec.ReplicasAfter, rec.ChangedBy, rec.Phase, ended))
	}
}

// pods is a Deployment that wants some replicas, some of which exist and are ready.
func pods(wanted, total, ready int32, change ...func(*Workload)) *Workload {
	w := &Workload{
		Kind: KindDeployment, Name: "web", UID: "u", Generation: 1, ObservedGeneration: 1, Template: Template{"A", "a"},
		Replicas: wanted, Total: total, Updated: total, Ready: ready, ScaledBy: "kube-controller-manager", ScaledAt: epoch.Add(-time.Hour),
	}
	for _, f := range change {
		f(w)
	}
	return w
}

func TestScalings(t *testing.T) {
	const s = time.Second
	template := func(w *Workload) { w.Template, w.TemplateManager = Template{"B", "b"}, "kubectl" }
	at := func(seconds int) func(*Workload) {
		return func(w *Workload) { w.ScaledAt = epoch.Add(time.Duration(seconds) * s) }
	}
	unseen := func(w *Workload) { w.Generation = 2 }
	old := func(w *Workload) { w.Updated = 0 }
	for name, c := range map[string]struct {
		play func(*scaled)
		want []string
	}{
		"what was there is no scaling": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(2, 2, 1))
			x.evaluate(s, pods(2, 2, 2))
		}, nil},
		"up": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(5, 2, 2, at(1), unseen))
			x.evaluate(s, pods(5, 5, 2, at(1)))
			x.evaluate(2*s, pods(5, 5, 5, at(1)))
			x.evaluate(29*s, pods(5, 5, 4, at(1))) // a pod that crashes later changes no result
			x.evaluate(s, pods(5, 5, 5, at(1)))
		}, []string{"2 to 5 by kube-controller-manager: Progressing", "2 to 5 by kube-controller-manager: Complete after 3s"}},
		"down to nothing, seen at once": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(0, 0, 0, at(1)))
			x.evaluate(30*s, pods(0, 0, 0, at(1)))
		}, []string{"2 to 0 by kube-controller-manager: Progressing", "2 to 0 by kube-controller-manager: Complete after 0s"}},
		"changes that follow one another are one": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			for n := range int32(20) {
				x.evaluate(s, pods(3+n%2, 3+n%2, 3+n%2, at(1)))
			}
			x.evaluate(30*s, pods(4, 4, 4, at(1)))
		}, []string{"2 to 3 by kube-controller-manager: Progressing", "2 to 4 by kube-controller-manager: Complete after 19s"}},
		"one that never ends costs two writes in half an hour": {func(x *scaled) {
			x.evaluate(0, pods(1, 1, 1))
			for n := range int32(3600) {
				x.evaluate(s, pods(2-n%2, 2-n%2, 2-n%2, func(w *Workload) { w.ScaledAt = x.now }))
			}
		}, []string{
			"1 to 2 by kube-controller-manager: Progressing", "1 to 1 by kube-controller-manager: Complete after 30m0s",
			"1 to 2 by kube-controller-manager: Progressing", "1 to 1 by kube-controller-manager: Complete after 30m0s",
		}},
		"pods that do not become ready": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(5, 5, 2, at(1)))
			x.evaluate(29*time.Minute, pods(5, 5, 3, at(1)))
			x.evaluate(time.Minute, pods(5, 5, 3, at(1)))
		}, []string{"2 to 5 by kube-controller-manager: Progressing", "2 to 5 by kube-controller-manager: TimedOut after 30m0s"}},
		"a rollout takes over": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(5, 5, 2, at(1)))
			x.evaluate(s, pods(7, 5, 2, template, old, at(1)))
		}, []string{"2 to 5 by kube-controller-manager: Progressing", "2 to 5 by kube-controller-manager: Superseded after 1s"}},
		"a rollout begins when the pods are ready": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(5, 5, 5, at(1)))
			x.evaluate(9*s, pods(5, 5, 5, template, unseen))
		}, []string{"2 to 5 by kube-controller-manager: Progressing", "2 to 5 by kube-controller-manager: Complete after 0s"}},
		"what changes while a rollout goes on is the rollout's": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(4, 2, 2, template, unseen))
			x.evaluate(s, pods(6, 7, 2, template, old))
			x.evaluate(s, pods(6, 6, 5, template))
			x.evaluate(s, pods(7, 6, 5, template, at(4)))
		}, []string{"6 to 7 by kube-controller-manager: Progressing"}},
		"seen first while a rollout goes on": {func(x *scaled) {
			x.evaluate(0, pods(2, 3, 2, old))
			x.evaluate(s, pods(4, 5, 2, old))
		}, nil},
		"a StatefulSet whose partition keeps pods back": {func(x *scaled) {
			partition := func(w *Workload) { w.Kind, w.Updated, w.Partition = KindStatefulSet, 1, 2 }
			x.evaluate(0, pods(3, 3, 3, partition))
			x.evaluate(s, pods(4, 3, 3, partition, at(1)))
		}, []string{"3 to 4 by kube-controller-manager: Progressing"}},
		"deleted": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(5, 5, 2, at(1)))
			x.evaluate(s, nil)
			x.evaluate(s, pods(9, 0, 0, func(w *Workload) { w.UID = "v" }))
		}, []string{"2 to 5 by kube-controller-manager: Progressing", "2 to 5 by kube-controller-manager: Gone after 1s"}},
		"deleted and made again": {func(x *scaled) {
			x.evaluate(0, pods(2, 2, 2))
			x.evaluate(s, pods(5, 5, 2, at(1)))
			x.evaluate(s, pods(9, 9, 9, func(w *Workload) { w.UID = "v" }))
		}, []string{"2 to 5 by kube-controller-manager: Progressing", "2 to 5 by kube-controller-manager: Gone after 1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := &scaled{now: epoch}
			c.play(x)
			if diff := cmp.Diff(c.want, x.writes); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

// TestScalingGoesOnAfterARestart: a scaling that is resumed from the store must end as it
// would have without the restart.
func TestScalingGoesOnAfterARestart(t *testing.T) {
	x := &scaled{now: epoch}
	x.evaluate(0, pods(2, 2, 2))
	x.evaluate(time.Second, pods(5, 5, 2, func(w *Workload) { w.ScaledAt = epoch }))
	begun := x.stored

	x.scale = Resumed(begun)
	x.evaluate(time.Second, pods(6, 6, 3))
	x.evaluate(time.Second, pods(6, 6, 6))
	if x.scale.Unseen || x.scale.Due(ScalePolicy{}) != x.now.Add(30*time.Second) || x.scale.Completed() == nil {
		t.Errorf("after the restart: %+v", x.scale)
	}
	x.evaluate(30*time.Second, pods(6, 6, 6))
	if r := x.stored; r.ID != begun.ID || r.Phase != deploy.RolloutComplete || r.ReplicasAfter != 6 || r.CompletedAt != epoch.Add(3*time.Second) || !strings.Contains(r.Reason, "2 to 6") {
		t.Errorf("ended as %+v", r)
	}

	x.scale = Resumed(begun)
	x.evaluate(time.Second, pods(5, 5, 5))
	x.evaluate(30*time.Second, pods(5, 5, 5))
	if r := x.stored; !strings.Contains(r.Reason, "began to watch again") {
		t.Errorf("a scaling that ended unobserved: %q", r.Reason)
	}

	x.scale = Resumed(begun)
	x.evaluate(time.Second, nil)
	if x.stored.Phase != deploy.RolloutGone || x.scale != (Scale{}) {
		t.Errorf("a deleted workload: %+v", x.stored)
	}
	if idle := (Scale{UID: "u"}); !idle.Due(ScalePolicy{}).IsZero() || idle.Completed() != nil {
		t.Errorf("no scaling is in progress: %+v", idle)
	}
}
