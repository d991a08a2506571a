package app

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/c785c783/piped/piped/deploy"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestForeignRolloutsFindsFaults: the comparison finds every kind of fault, and none in
// correct records and notifications.
func TestForeignRolloutsFindsFaults(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	// The agent watches from 10 s on, and is away from 100 s to 120 s. Revision 1 is older,
	// 2 comes at 20 s and is complete at 24 s, 3 at 50 s and is interrupted at 52 s by 4, which
	// is complete at 56 s, and 5 comes while the agent is away.
	revision := func(n int64, image string, begun, shown float64) *foreignRollout {
		r := &foreignRollout{revision: n, made: at(begun), epoch: epoch{image: image, begun: at(begun), wanted: []wantedReplicas{{at(begun), 1}}}}
		if shown > 0 {
			r.shown = at(shown)
		}
		return r
	}
	seen := map[string]*foreignWorkload{"web": {
		oracleDeployment: oracleDeployment{pods: map[string]*oraclePod{
			"1": {"v1", at(1), at(2), at(24)}, "2": {"v2", at(20), at(23), at(56)}, "3": {"v3", at(50), time.Time{}, at(52)},
			"4": {"v4", at(52), at(55), at(106)}, "5": {"v5", at(102), at(105), time.Time{}},
		}},
		lives: []*foreignLife{{uid: "u", kind: "Deployment", rollouts: []*foreignRollout{
			revision(1, "v1", 1, 3), revision(2, "v2", 20, 24), revision(3, "v3", 50, 0), revision(4, "v4", 52, 56), revision(5, "v5", 102, 107),
		}}},
	}}
	record := func(n int64, phase deploy.RolloutPhase, begun, end float64) deploy.Rollout {
		images := []string{"", "v1", "v2", "v3", "v4", "v5"}
		return deploy.Rollout{
			ID: deploy.ExternalRolloutID("devcluster", "u", n), UID: "u", Revision: n, Phase: phase, Images: images[n], ImagesBefore: images[n-1],
			Workload: deploy.ObjectRef{Kind: "Deployment", Name: "web"}, StartedAt: at(begun), CreatedAt: at(begun), CompletedAt: at(end), FoundLate: n == 5,
		}
	}
	with := func(r deploy.Rollout, change func(*deploy.Rollout)) deploy.Rollout { change(&r); return r }
	const complete, superseded = deploy.RolloutComplete, deploy.RolloutSuperseded
	second, third, fourth, fifth := record(2, complete, 20, 25), record(3, superseded, 50, 52), record(4, complete, 52, 57), record(5, complete, 102, 107)
	all := func(change ...deploy.Rollout) []deploy.Rollout {
		records := []deploy.Rollout{second, third, fourth, fifth}
		for _, r := range change {
			records[r.Revision-2] = r
		}
		return records
	}
	announced := func(records []deploy.Rollout) (events []foreignEvent) {
		for _, r := range records {
			started := foreignEvent{string(deploy.EventRolloutStarted), r.ID + "/started", r.ID, "", deploy.RolloutProgressing, r.FoundLate}
			if r.Revision == 4 {
				started.interrupts = third.ID
			}
			events = append(events, started)
			if r.Phase.Terminal() {
				events = append(events, foreignEvent{string(deploy.EventRolloutEnded), r.ID, r.ID, "", r.Phase, r.FoundLate})
			}
		}
		return events
	}
	type found struct{ lost, duplicate, wrong int }
	cases := map[string]struct {
		records []deploy.Rollout
		events  func([]foreignEvent) []foreignEvent // nil: as the records are
		want    found
	}{
		"all is well":                        {records: all()},
		"no record":                          {records: []deploy.Rollout{second, third, fifth}, want: found{lost: 1}},
		"one from before the watch":          {records: append(all(), with(record(1, complete, 1, 3), func(r *deploy.Rollout) { r.ImagesBefore = "" })), want: found{wrong: 1}},
		"one of no revision":                 {records: append(all(), with(fifth, func(r *deploy.Rollout) { r.ID, r.Revision = "external/devcluster/u/6", 6 })), want: found{wrong: 1}},
		"not found late":                     {records: all(with(fifth, func(r *deploy.Rollout) { r.FoundLate = false })), want: found{wrong: 1}},
		"found late without being away":      {records: all(with(second, func(r *deploy.Rollout) { r.FoundLate = true })), want: found{wrong: 1}},
		"other images before":                {records: all(with(fifth, func(r *deploy.Rollout) { r.ImagesBefore = "v3" })), want: found{wrong: 1}},
		"an early start":                     {records: all(with(second, func(r *deploy.Rollout) { r.StartedAt = at(10) })), want: found{wrong: 1}},
		"complete before its pods are ready": {records: all(with(second, func(r *deploy.Rollout) { r.CompletedAt = at(22) })), want: found{wrong: 1}},
		"complete with an old pod":           {records: all(with(second, func(r *deploy.Rollout) { r.CompletedAt = at(23.5) })), want: found{wrong: 1}},
		"interrupted after its end":          {records: all(with(second, func(r *deploy.Rollout) { r.Phase, r.CompletedAt = superseded, at(50) })), want: found{wrong: 2}},
		"interrupted by nothing":             {records: all(with(fifth, func(r *deploy.Rollout) { r.Phase = superseded })), want: found{wrong: 1}},
		"failed without a reason":            {records: all(record(4, deploy.RolloutFailed, 52, 57)), want: found{wrong: 1}},
		"gone":                               {records: all(record(4, deploy.RolloutGone, 52, 57)), want: found{wrong: 1}},
		"no end":                             {records: all(with(fifth, func(r *deploy.Rollout) { r.Phase = deploy.RolloutProgressing })), want: found{lost: 1}},
		"an end that is not announced":       {records: all(), events: func(e []foreignEvent) []foreignEvent { return e[:len(e)-1] }, want: found{lost: 1}},
		"a start that is not announced":      {records: all(), events: func(e []foreignEvent) []foreignEvent { return e[1:] }, want: found{lost: 1}},
		"an end before the start":            {records: all(), events: func(e []foreignEvent) []foreignEvent { e[0], e[1] = e[1], e[0]; return e }, want: found{wrong: 1}},
		"announced twice":                    {records: all(), events: func(e []foreignEvent) []foreignEvent { return append(e, e[0]) }, want: found{duplicate: 1}},
		"an interruption that is not said":   {records: all(), events: func(e []foreignEvent) []foreignEvent { e[4].interrupts = ""; return e }, want: found{wrong: 1}},
		"an interruption that was none":      {records: all(), events: func(e []foreignEvent) []foreignEvent { e[2].interrupts = second.ID; return e }, want: found{wrong: 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			events := announced(c.records)
			if c.events != nil {
				events = c.events(events)
			}
			e := foreignEvidence{
				records: c.records, events: events, seen: seen, launched: at(5), ups: []uptime{{at(5), at(10), at(100)}, {at(118), at(120), time.Time{}}},
				proofs: []proof{{at(30), at(31)}, {at(57), at(58)}, {at(125), at(126)}},
			}
			e.compare()
			if got := (found{len(e.lost), len(e.duplicate), len(e.wrong)}); got != c.want {
				t.Errorf("found %+v, want %+v:\n%+v", got, c.want, e.rolloutFaults)
			}
		})
	}
}

// TestForeignOracleWatchesInAnyOrder: the watches of the oracle are independent, so a workload may
// be seen complete before its revision is seen at all.
func TestForeignOracleWatchesInAnyOrder(t *testing.T) {
	t.Parallel()
	controlled := true
	workload := func(version int, image string, available int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u", ResourceVersion: strconv.Itoa(version)},
			Spec:       appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}},
			Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: available},
		}
	}
	revision := func(version int, image string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web-1", ResourceVersion: strconv.Itoa(version),
				OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "web", UID: "u", Controller: &controlled}},
			},
			Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"spec":{"containers":[{"image":"` + image + `"}]}}}}`)},
		}
	}
	for name, c := range map[string]struct {
		objects []runtime.Object
		open    bool
	}{
		"in order":                         {[]runtime.Object{workload(1, "v1", 0), revision(2, "v1"), workload(3, "v1", 1)}, false},
		"the revision last":                {[]runtime.Object{workload(1, "v1", 0), workload(3, "v1", 1), revision(2, "v1")}, false},
		"not complete":                     {[]runtime.Object{workload(1, "v1", 1), workload(3, "v1", 0), revision(2, "v1")}, true},
		"complete before the revision":     {[]runtime.Object{workload(1, "v1", 1), revision(2, "v1")}, true},
		"complete with another template":   {[]runtime.Object{workload(3, "v0", 1), revision(2, "v1")}, true},
		"complete again with the revision": {[]runtime.Object{workload(1, "v1", 1), revision(2, "v1"), workload(3, "v1", 1)}, false},
	} {
		o := &foreignOracle{byName: map[string]*foreignWorkload{}}
		for _, object := range c.objects {
			o.see(t, watch.Event{Type: watch.Modified, Object: object})
		}
		if open := o.open(nil); strings.Contains(open, "rolls out") != c.open {
			t.Errorf("%s: open is %q", name, open)
		}
	}
	o := &foreignOracle{byName: map[string]*foreignWorkload{}}
	if open := o.open(map[string]*modelv1.Rollout{"external/devcluster/u/1": {}}); !strings.Contains(open, "has not seen the revision") {
		t.Errorf("with a record of a revision that is seen later: open is %q", open)
	}
	// A Deployment with 1 pod was scaled to 3 and to 2 before the oracle saw its revision, of resource version 5.
	l, seen := &foreignLife{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l.scale(1, 3, seen, seen)
	l.scale(3, 7, seen.Add(-8*time.Second), seen)
	l.scale(2, 9, seen.Add(-6*time.Second), seen)
	want := []wantedReplicas{{seen, 1}, {seen, 3}, {seen.Add(-6 * time.Second), 2}}
	if wanted := l.wantedSince(5); !slices.Equal(wanted, want) {
		t.Errorf("since the revision %v pods were wanted, want %v", wanted, want)
	}
	if wanted := l.wantedSince(9); !slices.Equal(wanted, want[2:]) {
		t.Errorf("since the last scaling %v pods were wanted, want %v", wanted, want[2:])
	}
}
