package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSoften: the problem of a pod of an older revision fails the rollout only if the
// rollout waits for that pod.
func TestSoften(t *testing.T) {
	pod := func(name string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	ofSet := []corev1.Pod{pod("old", map[string]string{"controller-revision-hash": "web-a"}), pod("new", map[string]string{"controller-revision-hash": "web-b"}), pod("unmarked", nil)}
	ofNodes := []corev1.Pod{pod("old", map[string]string{"pod-template-generation": "1"}), pod("new", map[string]string{"pod-template-generation": "2"}), pod("unmarked", nil)}
	for name, c := range map[string]struct {
		workload Workload
		pods     []corev1.Pod
		hard     []string
	}{
		"Deployment":                 {Workload{Kind: KindDeployment}, ofSet, []string{"old", "new", "unmarked", "none"}},
		"StatefulSet, one by one":    {Workload{Kind: KindStatefulSet, UpdateRevision: "web-b", Ordered: true}, ofSet, []string{"old", "new", "unmarked", "none"}},
		"StatefulSet, all at once":   {Workload{Kind: KindStatefulSet, UpdateRevision: "web-b"}, ofSet, []string{"new", "unmarked", "none"}},
		"DaemonSet":                  {Workload{Kind: KindDaemonSet, UpdateRevision: "2"}, ofNodes, []string{"new", "unmarked", "none"}},
		"DaemonSet without a number": {Workload{Kind: KindDaemonSet}, ofNodes, []string{"old", "new", "unmarked", "none"}},
	} {
		troubles := []Trouble{{Pod: "old", Hard: true}, {Pod: "new", Hard: true}, {Pod: "unmarked", Hard: true}, {Pod: "none", Hard: true}}
		demote(troubles, c.pods, &c.workload)
		var hard []string
		for _, trouble := range troubles {
			if trouble.Hard {
				hard = append(hard, trouble.Pod)
			}
		}
		if diff := cmp.Diff(c.hard, hard); diff != "" {
			t.Errorf("%s: hard troubles (-want +got):\n%s", name, diff)
		}
	}
}
