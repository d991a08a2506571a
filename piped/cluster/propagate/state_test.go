package propagate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const settings, tls = "/ConfigMap/shop/settings", "/Secret/shop/tls"

func row() deploy.Propagation {
	return deploy.Propagation{
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		Configs:  map[string]string{settings: "a"},
		Settings: deploy.NudgeSettings{RepeatAfter: 5 * time.Second, MaxPods: 2, RatePerSecond: 50},
	}
}

func TestNote(t *testing.T) {
	for name, c := range map[string]struct {
		configs  map[string]string
		changed  []string
		restored map[string]bool
	}{
		"the same":                      {map[string]string{settings: "a"}, nil, nil},
		"other content":                 {map[string]string{settings: "b"}, []string{settings}, nil},
		"gone":                          {map[string]string{settings: ""}, []string{settings}, nil},
		"one that was not known before": {map[string]string{settings: "a", tls: "t"}, nil, nil},
		"not used any more":             {map[string]string{}, nil, nil},
		"put back":                      {map[string]string{settings: "a"}, []string{settings}, map[string]bool{settings: true}},
		"another was put back":          {map[string]string{settings: "a"}, nil, map[string]bool{tls: true}},
	} {
		p, changed := Note(row(), c.configs, c.restored)
		if diff := cmp.Diff(c.configs, p.Configs); diff != "" || changed != (c.changed != nil) {
			t.Errorf("%s: changed %t\n%s", name, changed, diff)
		}
		if diff := cmp.Diff(c.changed, p.Changed); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestLife: a change is nudged at once, a second later and repeatAfter later, each time
// with another value; then it is done.
func TestLife(t *testing.T) {
	p, _ := Note(row(), map[string]string{settings: "b"}, nil)
	p = Begin(p, noon, noon)
	if p.Phase != deploy.PropagationNudge || !p.NextAt.Equal(noon) || len(p.Value) != shown {
		t.Fatalf("begun: %+v", p)
	}
	first := Wanted(p)
	p = Passed(p, deploy.NudgeOutcome{Pods: 1, Names: []string{"web-1"}}, noon)
	if !p.NextAt.Equal(noon.Add(time.Second)) || Wanted(p) != first+".2" {
		t.Fatalf("nudged: %+v", p)
	}
	p = Passed(p, deploy.NudgeOutcome{}, noon.Add(time.Second))
	if p.Phase != deploy.PropagationRepeat || !p.NextAt.Equal(noon.Add(5*time.Second)) || Wanted(p) != first+".3" {
		t.Fatalf("nudged twice: %+v", p)
	}
	p = Passed(p, deploy.NudgeOutcome{}, noon.Add(8*time.Second))
	if p.Phase != deploy.PropagationDone || !p.NextAt.IsZero() || p.Outcome.Pods != 1 {
		t.Fatalf("done: %+v", p)
	}
	if again, changed := Note(p, map[string]string{settings: "b"}, nil); changed || !again.NextAt.IsZero() {
		t.Fatalf("repeated: %+v", again)
	}
}

// TestPutBackWithoutRepeat: pods have the value of the content that is restored and must
// get another one; when the other content is restored, they get the first value.
func TestPutBackWithoutRepeat(t *testing.T) {
	p, _ := Note(row(), map[string]string{settings: "b"}, nil)
	p.Settings.RepeatAfter = 0
	p = Begin(p, noon, noon)
	had := Wanted(p)
	for range 2 {
		p = Passed(p, deploy.NudgeOutcome{}, noon)
		var changed bool
		p, changed = Note(p, map[string]string{settings: "b"}, map[string]bool{settings: true})
		if p = Begin(p, noon.Add(time.Minute), noon.Add(time.Minute)); !changed || Wanted(p) == had || len(p.Value) != shown {
			t.Fatalf("changed %t, pods have %q and get %q", changed, had, Wanted(p))
		}
		had = Wanted(p)
	}
}

// TestDelayAndOneRepetition: a configured delay is observed, and nothing is repeated
// after the last repetition.
func TestDelayAndOneRepetition(t *testing.T) {
	p := row()
	p.Settings.Delay, p.Settings.RepeatAfter = 3*time.Second, time.Second
	if p = Begin(p, noon, noon); !p.NextAt.Equal(noon.Add(3 * time.Second)) {
		t.Fatalf("begun: %+v", p)
	}
	p = Passed(p, deploy.NudgeOutcome{}, noon)
	if p.Phase != deploy.PropagationRepeat || !p.NextAt.Equal(noon.Add(time.Second)) || Wanted(p) != p.Value+".2" {
		t.Fatalf("nudged: %+v", p)
	}
	if p = Passed(p, deploy.NudgeOutcome{}, noon); p.Phase != deploy.PropagationDone {
		t.Fatalf("repeated: %+v", p)
	}
}

func TestBeginOff(t *testing.T) {
	p, _ := Note(row(), map[string]string{settings: "b"}, nil)
	p.Off = true
	if p = Begin(p, noon, noon); p.Phase != deploy.PropagationDone || !p.NextAt.IsZero() || p.Configs[settings] != "b" {
		t.Errorf("%+v", p)
	}
}

// TestChangesDuringANotification: a second change during a notification: both are notified,
// with the later content.
func TestChangesDuringANotification(t *testing.T) {
	p := row()
	p.Configs[tls] = "t"
	p, _ = Note(p, map[string]string{settings: "b", tls: "t"}, nil)
	p = Begin(p, noon, noon)
	p, changed := Note(p, map[string]string{settings: "b", tls: "u"}, nil)
	if diff := cmp.Diff([]string{settings, tls}, p.Changed); diff != "" || !changed {
		t.Errorf("changed %t\n%s", changed, diff)
	}
}

// TestFailures: failed notifications are retried with growing delays, and not for ever.
func TestFailures(t *testing.T) {
	p, _ := Note(row(), map[string]string{settings: "b"}, nil)
	p = Begin(p, noon, noon)
	failed, now, tries := deploy.NudgeOutcome{Problem: "refused"}, noon.Add(time.Second), 0
	for last := time.Duration(0); p.Phase != deploy.PropagationDone; tries++ {
		p = Passed(p, failed, now)
		if p.Phase == deploy.PropagationDone {
			break
		}
		wait := p.NextAt.Sub(now)
		if wait < last || wait > longestRetry {
			t.Fatalf("retried after %s, the last time after %s", wait, last)
		}
		last, now = wait, p.NextAt
	}
	if took := now.Sub(noon); took < retryFor || took > retryFor+2*longestRetry || tries > 30 {
		t.Errorf("given up after %s and %d tries", took, tries)
	}
	repeat := row()
	repeat.Settings.RepeatAfter = 0
	if p := Passed(Begin(repeat, noon, noon), deploy.NudgeOutcome{Pods: 1}, noon); p.Phase != deploy.PropagationDone {
		t.Errorf("repeatAfter: 0 is repeated: %+v", p)
	}
}

func TestRef(t *testing.T) {
	want := deploy.ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
	if diff := cmp.Diff(want, Ref(want.Key())); diff != "" {
		t.Error(diff)
	}
}

// pod is a running pod of ReplicaSet web-5d, created a minute before noon.
func pod(name string, change func(*metav1.PartialObjectMetadata)) metav1.PartialObjectMetadata {
	yes := true
	p := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)), Labels: map[string]string{"pod-template-hash": "5d"}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d", Controller: &yes}},
	}}
	if change != nil {
		change(&p)
	}
	return p
}

func TestPods(t *testing.T) {
	p := row()
	p.ChangedAt, p.Settings.MaxPods = noon, 3
	running := []metav1.PartialObjectMetadata{
		pod("d", nil), pod("c", nil), pod("a", nil), pod("b", nil),
		pod("terminating", func(p *metav1.PartialObjectMetadata) { now := metav1.NewTime(noon); p.DeletionTimestamp = &now }),
		pod("mirror", func(p *metav1.PartialObjectMetadata) { p.Annotations["kubernetes.io/config.mirror"] = "x" }),
		pod("static", func(p *metav1.PartialObjectMetadata) { p.Annotations["kubernetes.io/config.source"] = "file" }),
		pod("later", func(p *metav1.PartialObjectMetadata) { p.CreationTimestamp = metav1.NewTime(noon.Add(time.Second)) }),
		pod("canary", func(p *metav1.PartialObjectMetadata) { p.OwnerReferences[0].Name = "web-canary-5d" }),
		pod("bare", func(p *metav1.PartialObjectMetadata) { p.OwnerReferences = nil }),
	}
	found, over := Pods(running, p)
	var names []string
	for _, pod := range found {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" || over != 1 {
		t.Errorf("%d left out\n%s", over, diff)
	}
	set := deploy.ObjectRef{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}
	of := func(kind, name string) metav1.PartialObjectMetadata {
		return pod("x", func(p *metav1.PartialObjectMetadata) {
			p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = kind, name
		})
	}
	p.Workload = set
	if found, _ := Pods([]metav1.PartialObjectMetadata{of("StatefulSet", "db"), of("StatefulSet", "other"), of("DaemonSet", "db")}, p); len(found) != 1 {
		t.Errorf("of a StatefulSet: %d pods", len(found))
	}
	for _, c := range []struct {
		workload deploy.ObjectRef
		pod      metav1.PartialObjectMetadata
		found    int
	}{
		{deploy.ObjectRef{Kind: "Pod", Name: "bare"}, pod("bare", func(p *metav1.PartialObjectMetadata) { p.OwnerReferences = nil }), 1},
		{deploy.ObjectRef{Kind: "Pod", Name: "bare"}, pod("other", func(p *metav1.PartialObjectMetadata) { p.OwnerReferences = nil }), 0},
		{deploy.ObjectRef{Group: "batch", Kind: "Job", Name: "once"}, of("Job", "once"), 1},
		{deploy.ObjectRef{Group: "batch", Kind: "CronJob", Name: "daily"}, of("Job", "daily-29112233"), 1},
		{deploy.ObjectRef{Group: "batch", Kind: "CronJob", Name: "daily"}, of("Job", "daily-report-29112233"), 0},
		{deploy.ObjectRef{Group: "apps", Kind: "ReplicaSet", Name: "web-5d"}, of("ReplicaSet", "web-5d"), 1},
	} {
		p.Workload = c.workload
		if found, _ := Pods([]metav1.PartialObjectMetadata{c.pod}, p); len(found) != c.found {
			t.Errorf("%s, pod %s: %d pods, want %d", c.workload, c.pod.Name, len(found), c.found)
		}
	}
}

func TestNotified(t *testing.T) {
	p := Begin(row(), noon, noon)
	has := func(value string) bool {
		notified := pod("a", func(pod *metav1.PartialObjectMetadata) { pod.Annotations[manifest.AnnotationConfigSync] = value })
		return Notified(&notified, p)
	}
	if !has(p.Value) || has("") || has(p.Value+".2") { // the last value is of an earlier change
		t.Error("first nudge")
	}
	p.Phase = deploy.PropagationRepeat
	if has(p.Value) || !has(p.Value+".3") {
		t.Error("repeat")
	}
}
