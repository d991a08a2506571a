package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestScaledByHandAfterAnAutoscaler: replicas that are left to an autoscaler are compared
// again once a user writes them. Without the autoscaler, Git's value applies.
func TestScaledByHandAfterAnAutoscaler(t *testing.T) {
	const hpa = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n" +
		"spec: {minReplicas: 1, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"
	l := newEnv(t)
	l.apply(t, shop)
	l.as("somebody").apply(t, hpa)
	l.as("kube-controller-manager").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":7}}`, "scale")
	known := l.compare(t, shop)[2]
	if !known.Unchanged {
		t.Fatalf("scaled by the autoscaler it is %+v", known)
	}
	l.drop(t, "autoscaling/v2", "HorizontalPodAutoscaler", "web")
	l.as("kubectl").patch(t, "apps/v1", "Deployment", "web", `{"spec":{"replicas":9}}`, "scale")
	if now := l.compare(t, shop)[2]; now.Mark == known.Mark {
		t.Errorf("its mark is still %s: the watch does not show that the Deployment was scaled by hand", now.Mark)
	}
	if diff := cmp.Diff([]string{"Deployment web spec.replicas: 2 -> 9 by kubectl (scale)"}, l.found(l.compare(t, shop))); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}
