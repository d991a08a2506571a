package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
)

var templates = []Template{{"A", "a"}, {"B", "b"}, {"B+restart", "b"}, {"C", "c"}}

// anySnapshot draws a random snapshot: stale, impossible or missing.
func anySnapshot(t *rapid.T) Snapshot {
	var s Snapshot
	if rapid.IntRange(0, 19).Draw(t, "found") > 0 {
		s.Workload = anyWorkload(t)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "sets") {
		s.Revisions = append(s.Revisions, anyRevision(t, i))
	}
	s.Confirmed = rapid.Bool().Draw(t, "confirmed")
	if s.PodsRead = rapid.Bool().Draw(t, "podsRead"); s.PodsRead && rapid.Bool().Draw(t, "trouble") {
		s.Troubles = []Trouble{{Pod: "web-1", Text: "ImagePullBackOff", Hard: rapid.Bool().Draw(t, "hard")}}
	}
	return s
}

func anyWorkload(t *rapid.T) *Workload {
	count := rapid.Int32Range(0, 4)
	generation := rapid.Int64Range(1, 4)
	reasons := []string{"", "NewReplicaSetCreated", "ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded",
		"ReplicaSetCreateError", "DeploymentPaused", "DeploymentResumed"}
	return &Workload{
		Kind: KindDeployment, Name: "web", UID: rapid.SampledFrom([]string{"u", "u", "u", "u", "other"}).Draw(t, "uid"),
		Generation: generation.Draw(t, "generation"), ObservedGeneration: generation.Draw(t, "observed"),
		Deleting: rapid.IntRange(0, 19).Draw(t, "deleting") == 0, Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
		Template: rapid.SampledFrom(templates[1:]).Draw(t, "template"), TemplateManager: rapid.SampledFrom([]string{"piped", "kubectl", ""}).Draw(t, "manager"),
		Replicas: count.Draw(t, "replicas"), Strategy: rapid.SampledFrom([]string{"RollingUpdate", "Recreate"}).Draw(t, "strategy"),
		Deadline: rapid.SampledFrom([]time.Duration{0, 60 * time.Second}).Draw(t, "deadline"),
		Total:    count.Draw(t, "total"), Updated: count.Draw(t, "updated"), Ready: count.Draw(t, "ready"), Available: count.Draw(t, "available"),
		Progressing: Condition{Reason: rapid.SampledFrom(reasons).Draw(t, "reason"), Updated: epoch.Add(anySeconds(t, "condition"))},
	}
}

func anyRevision(t *rapid.T, i int) Revision {
	count := rapid.Int32Range(0, 4)
	generation := rapid.Int64Range(1, 2)
	r := Revision{
		UID: fmt.Sprint(i), Name: fmt.Sprintf("web-%d", i), OwnerUID: rapid.SampledFrom([]string{"u", "u", "u", "other"}).Draw(t, "owner"),
		Number: rapid.Int64Range(0, 4).Draw(t, "number"), Template: rapid.SampledFrom(templates).Draw(t, "template"),
		Generation: generation.Draw(t, "generation"), ObservedGeneration: generation.Draw(t, "observed"),
		Desired: count.Draw(t, "desired"), Total: count.Draw(t, "total"), Ready: count.Draw(t, "ready"), Available: count.Draw(t, "available"),
		Created: epoch.Add(anySeconds(t, "created")),
	}
	if rapid.IntRange(0, 5).Draw(t, "failure") == 0 {
		r.Failure = Condition{Status: "True", Message: "quota"}
	}
	return r
}

func anySeconds(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.IntRange(-100, 900).Draw(t, name)) * time.Second
}

// proven is a second, naive implementation of the completion rule of a Deployment's
// rollout.
func proven(rec deploy.Rollout, s Snapshot, p Policy) bool {
	w := s.Workload
	if !s.Confirmed || w == nil || w.UID != rec.UID || w.Deleting || w.Paused || w.ObservedGeneration < rec.Generation {
		return false
	}
	if want := rec.TemplateDigest; rec.FollowedDigest != "" && w.Template.Digest != rec.FollowedDigest || rec.FollowedDigest == "" && w.Template.Digest != want {
		return false
	}
	var target *Revision
	for i, r := range s.Revisions {
		if r.OwnerUID != "u" || r.Template.Digest != w.Template.Digest {
			continue
		}
		if target == nil || r.Created.Before(target.Created) || r.Created.Equal(target.Created) && r.Name < target.Name {
			target = &s.Revisions[i]
		}
	}
	if target == nil || target.ObservedGeneration < target.Generation {
		return false
	}
	for _, r := range s.Revisions {
		if r.OwnerUID == "u" && r.UID != target.UID && (r.Number > target.Number || r.Desired != 0 || r.Total != 0 || r.ObservedGeneration < r.Generation) {
			return false
		}
	}
	if w.Replicas == 0 && (target.Desired != 0 || target.Total != 0) {
		return false
	}
	wanted := float64(min(rec.DesiredAtStart, w.Replicas)) * float64(p.ReadyThreshold) / 100
	if w.Replicas > 0 && (target.Available < 1 || float64(target.Available) < wanted) {
		return false
	}
	return true
}

// TestAnySequenceGivesAtMostOneJustifiedMark shows the engine random snapshots in any
// order, repeated and across restarts. At most one terminal mark may result, and only
// with proof.
func TestAnySequenceGivesAtMostOneJustifiedMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{ReadyThreshold: rapid.IntRange(1, 100).Draw(t, "threshold"), NoFailFast: rapid.Bool().Draw(t, "noFailFast")}
		rec := deploy.Rollout{ID: "r", DeploymentID: "d", Workload: deploy.ObjectRef{Kind: KindDeployment, Namespace: "shop", Name: "web"}}
		rec = Intended(rec, &Workload{Template: templates[0], Replicas: 2}, "")
		rec = Applied(rec, Workload{UID: "u", Generation: 2, Template: templates[1], Replicas: rapid.Int32Range(0, 4).Draw(t, "wanted")}, epoch)
		now, marks := epoch, 0
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "passed")) * time.Second)
			s := anySnapshot(t)
			v := Evaluate(rec, s, p, now)
			if again := Evaluate(rec, s, p, now); !cmp.Equal(v, again) {
				t.Fatalf("a second evaluation of the same input differs:\n%s", cmp.Diff(v, again))
			}
			checkVerdict(t, rec, s, p, v)
			if v.Mark {
				marks++
			}
			rec = v.Record
		}
		if marks > 1 {
			t.Fatalf("%d marks", marks)
		}
	})
}

func checkVerdict(t *rapid.T, rec deploy.Rollout, s Snapshot, p Policy, v Verdict) {
	ended := v.Record.Phase.Terminal() && !rec.Phase.Terminal()
	switch {
	case rec.Phase.Terminal() && (v.Mark || v.Changed || v.Record != rec):
		t.Fatalf("%s changed after its end: %+v", rec.Phase, v)
	case v.Mark != ended:
		t.Fatalf("mark %v for %s -> %s", v.Mark, rec.Phase, v.Record.Phase)
	case ended && !s.Confirmed:
		t.Fatalf("%s from the cache alone", v.Record.Phase)
	case v.NeedConfirm && s.Confirmed:
		t.Fatal("asks to confirm a confirmed snapshot")
	case v.WakeAfter < 0:
		t.Fatalf("wake after %s", v.WakeAfter)
	case !v.Record.Phase.Terminal() && v.Changed != (v.Record != rec):
		t.Fatalf("changed = %v", v.Changed)
	}
	followed := v.Record
	if complete := proven(followed, s, p); ended && v.Record.Phase == deploy.RolloutComplete && !complete {
		t.Fatalf("complete without proof: %+v", s)
	} else if complete && !rec.Phase.Terminal() && v.Record.Phase != deploy.RolloutComplete && s.Workload.Generation >= rec.Generation {
		t.Fatalf("proven complete, but %s: %s", v.Record.Phase, v.Progress)
	}
}

// TestScalingNeverFailsOrLosesARollout advances a rollout slowly while an autoscaler
// scales at random. Every step either makes a new pod available or stops an old one.
func TestScalingNeverFailsOrLosesARollout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.Int32Range(1, 20)
		wanted := replicas.Draw(t, "replicas")
		rec := deploy.Rollout{ID: "r", DeploymentID: "d", Workload: deploy.ObjectRef{Kind: KindDeployment, Namespace: "shop", Name: "web"}}
		rec = Intended(rec, &Workload{Template: templates[0], Replicas: wanted}, "")
		w := Workload{Kind: KindDeployment, Name: "web", UID: "u", Generation: 2, ObservedGeneration: 2, Template: templates[1], Replicas: wanted, Deadline: 60 * time.Second}
		rec = Applied(rec, w, epoch)
		old := Revision{UID: "1", Name: "web-a", OwnerUID: "u", Number: 1, Template: templates[0], Desired: wanted, Total: wanted}
		fresh := Revision{UID: "2", Name: "web-b", OwnerUID: "u", Number: 2, Template: templates[1]}
		now := epoch
		for range 200 {
			now = now.Add(time.Duration(rapid.IntRange(1, 25).Draw(t, "passed")) * time.Second)
			v := Evaluate(rec, Snapshot{Workload: &w, Revisions: []Revision{old, fresh}, Confirmed: true}, Policy{}, now)
			rec = v.Record
			if rec.Phase == deploy.RolloutComplete {
				return
			}
			if rec.Phase.Terminal() {
				t.Fatalf("%s: %s", rec.Phase, rec.Reason)
			}
			if rapid.IntRange(0, 4).Draw(t, "scale") == 0 {
				w.Replicas = replicas.Draw(t, "scaled")
				w.Generation++
				w.ObservedGeneration++
				scale(&old, &fresh, w.Replicas)
			}
			if fresh.Available < fresh.Desired {
				fresh.Total, fresh.Ready, fresh.Available = fresh.Total+1, fresh.Ready+1, fresh.Available+1
			} else if old.Total > 0 {
				old.Total--
				old.Desired = min(old.Desired, old.Total)
				fresh.Desired = min(fresh.Desired+1, w.Replicas)
			} else {
				fresh.Desired = w.Replicas
			}
		}
		t.Fatalf("not complete after 200 steps: %+v %+v %+v", w, old, fresh)
	})
}

// scale spreads the wanted pods over both ReplicaSets as the Deployment
// controller does, in proportion.
func scale(old, fresh *Revision, wanted int32) {
	share := int32(0)
	if sum := old.Desired + fresh.Desired; sum > 0 {
		share = wanted * old.Desired / sum
	}
	old.Desired, fresh.Desired = share, wanted-share
	old.Total = share
	fresh.Total = min(fresh.Total, fresh.Desired)
	fresh.Ready, fresh.Available = min(fresh.Ready, fresh.Desired), min(fresh.Available, fresh.Desired)
}
