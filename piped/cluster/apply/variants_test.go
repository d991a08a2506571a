package apply

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAutoscaled: the live number of pods counts only for workloads that an autoscaler
// scales, whether it belongs to the application or not.
func TestAutoscaled(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	workload := func(name string) string {
		return fmt.Sprintf("---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: 3, selector: {matchLabels: {app: %[1]s}}, "+
			"template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: a, image: a}]}}}}\n", name)
	}
	scaler := func(of string) string {
		return fmt.Sprintf("---\n{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: %s}, "+
			"spec: {minReplicas: 3, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}}}\n", of)
	}
	l.apply(t, workload("fixed")+workload("scaled")+workload("will-be")+scaler("scaled"))
	set := l.request(t, workload("fixed")+workload("scaled")+workload("will-be")+workload("absent")+scaler("will-be")).Objects
	got, err := l.Autoscaled(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"apps/Deployment/" + l.ns + "/scaled": 3, "apps/Deployment/" + l.ns + "/will-be": 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDeleteWithPods: when it returns, the pods are gone, too.
func TestDeleteWithPods(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.apply(t, web)
	pods := func() int {
		list, err := l.Typed().CoreV1().Pods(l.ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	for deadline := time.Now().Add(10 * time.Minute); pods() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there are no pods")
		}
	}
	ended, err := l.DeleteWithPods(t.Context(), "piped-1", l.items(), l.log)
	if err != nil || len(ended) != len(l.items()) {
		t.Fatalf("ended %v, %v", ended, err)
	}
	if n := pods(); n > 0 {
		t.Errorf("%d pods are left", n)
	}
}
