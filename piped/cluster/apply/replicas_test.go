package apply

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestReplicasLeftToAnAutoscalerAreKept: Git removes the replicas from the workload in
// the commit that adds the autoscaler, or later. In both cases the live number stays.
func TestReplicasLeftToAnAutoscalerAreKept(t *testing.T) {
	const hpa = "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n" +
		"spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"
	five, none := strings.Replace(web, "replicas: 1", "replicas: 5", 1), strings.Replace(web, "replicas: 1", "paused: false", 1)
	for name, steps := range map[string][]string{
		"with it":              {five, none + hpa, none + hpa},
		"after it":             {five, five + hpa, none + hpa},
		"next to another team": {five, none + hpa, none}, // it is live, but not in the set
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			for i, manifests := range steps {
				l.apply(t, manifests)
				if got, _, _ := unstructured.NestedInt64(l.get(t, "Deployment", "web").Object, "spec", "replicas"); got != 5 {
					t.Errorf("step %d: replicas are %d, want 5", i, got)
				}
			}
		})
	}
	t.Run("without an autoscaler the field falls back", func(t *testing.T) {
		l := newEnv(t)
		l.apply(t, five)
		l.apply(t, none)
		if got, _, _ := unstructured.NestedInt64(l.get(t, "Deployment", "web").Object, "spec", "replicas"); got != 1 {
			t.Errorf("replicas are %d, want 1", got)
		}
	})
}
