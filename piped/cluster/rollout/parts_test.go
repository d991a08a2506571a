package rollout

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
)

// TestParts measures recorded pods, one file per case.
func TestParts(t *testing.T) {
	files, err := filepath.Glob("testdata/parts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Since metav1.Time
				Pods  []corev1.Pod
				Want  struct{ Schedule, Pull, Ready *metav1.Duration }
			}
			if err := yaml.UnmarshalStrict(text, &c); err != nil {
				t.Fatal(err)
			}
			took := func(d *metav1.Duration) deploy.Took {
				if d == nil {
					return deploy.Took{}
				}
				return deploy.Took{Measured: true, Time: d.Duration}
			}
			want := deploy.RolloutParts{Schedule: took(c.Want.Schedule), Pull: took(c.Want.Pull), Ready: took(c.Want.Ready)}
			if diff := cmp.Diff(want, Parts(c.Pods, c.Since.Time)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewPods: only pods of the snapshot's template count, even if the selector matches
// others.
func TestNewPods(t *testing.T) {
	pod := func(name, owner string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}}}
	}
	stopping := pod("stopping", "r2", nil)
	stopping.DeletionTimestamp = &metav1.Time{Time: epoch}
	template := Template{"B", "b"}
	for name, c := range map[string]struct {
		s    Snapshot
		pods []corev1.Pod
		want string
	}{
		"of a Deployment": {
			Snapshot{Workload: &Workload{Kind: KindDeployment, UID: "u", Template: template}, Revisions: []Revision{
				{UID: "r1", OwnerUID: "u", Number: 1}, {UID: "r2", OwnerUID: "u", Number: 2, Template: template},
			}},
			[]corev1.Pod{pod("old", "r1", nil), pod("new", "r2", nil), stopping, pod("foreign", "x", nil), {}}, "new ",
		},
		"of a Deployment without its ReplicaSet": {
			Snapshot{Workload: &Workload{Kind: KindDeployment, UID: "u", Template: template}}, []corev1.Pod{pod("foreign", "", nil)}, "",
		},
		"of a StatefulSet": {
			Snapshot{Workload: &Workload{Kind: KindStatefulSet, UID: "u", UpdateRevision: "web-2"}},
			[]corev1.Pod{pod("old", "u", map[string]string{appsv1.StatefulSetRevisionLabel: "web-1"}), pod("new", "u", map[string]string{appsv1.StatefulSetRevisionLabel: "web-2"})}, "new ",
		},
		"of a DaemonSet": {
			Snapshot{Workload: &Workload{Kind: KindDaemonSet, UID: "u", UpdateRevision: "3"}},
			[]corev1.Pod{pod("old", "u", map[string]string{templateGenerationLabel: "2"}), pod("new", "u", map[string]string{templateGenerationLabel: "3"})}, "new ",
		},
	} {
		got := ""
		for _, p := range NewPods(c.pods, deploy.Rollout{TemplateDigest: "B"}, c.s) {
			got += p.Name + " "
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// measured counts how often pods are read.
type measured struct {
	Observer
	pods  []corev1.Pod
	err   error
	reads int
}

func (m *measured) NewPods(context.Context, deploy.Rollout, Snapshot) ([]corev1.Pod, error) {
	m.reads++
	return m.pods, m.err
}

// TestMeasured: pods are read once at an end for which they contain measurements, and
// otherwise not.
func TestMeasured(t *testing.T) {
	at := metav1.NewTime(epoch)
	pods := []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(2 * time.Second))}}},
	}}
	for phase, want := range map[deploy.RolloutPhase]int{
		deploy.RolloutComplete: 1, deploy.RolloutFailed: 1, deploy.RolloutTimedOut: 1,
		deploy.RolloutNoRollout: 0, deploy.RolloutSuperseded: 0, deploy.RolloutGone: 0, deploy.RolloutProgressing: 0,
	} {
		m := &measured{pods: pods}
		rec := Measured(t.Context(), m, deploy.Rollout{Phase: phase}, Snapshot{Workload: &Workload{TemplateManagedAt: epoch}})
		if m.reads != want || rec.Parts.Schedule.Measured != (want == 1) {
			t.Errorf("%s: %d reads, want %d; parts %+v", phase, m.reads, want, rec.Parts)
		}
	}
	m := &measured{pods: pods, err: deploy.Errorf(deploy.Unavailable, "away")}
	if rec := Measured(t.Context(), m, deploy.Rollout{Phase: deploy.RolloutComplete}, Snapshot{Workload: &Workload{}}); rec.Parts != (deploy.RolloutParts{}) {
		t.Errorf("unexpected parts: %+v", rec.Parts)
	}
}
