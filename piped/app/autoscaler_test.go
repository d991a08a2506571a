package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// scaledApp returns the files of an application with a Deployment and, if asked
// for, an autoscaler; replicas is a line of the Deployment's spec.
func scaledApp(namespace, image, replicas string, autoscaler bool) map[string]string {
	text := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  paused: false%s
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:%s", resources: {requests: {cpu: 10m}}}]}
`, replicas, image)
	if autoscaler {
		text += `---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 2, maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
`
	}
	return map[string]string{"web/app.pipecd.yaml": webApp(namespace, "", "")["web/app.pipecd.yaml"], "web/app.yaml": text}
}

// watchReplicas returns, once it sees the Deployment, a function that stops watching and returns
// all numbers of replicas that the Deployment has had since.
func watchReplicas(t *testing.T, client kubernetes.Interface, ns string) (seen func() map[int32]bool) {
	t.Helper()
	w, err := client.AppsV1().Deployments(ns).Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	numbers, shown, ended := map[int32]bool{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			if d, ok := e.Object.(*appsv1.Deployment); ok && e.Type != watch.Bookmark {
				if len(numbers) == 0 {
					close(shown)
				}
				numbers[*d.Spec.Replicas] = true
			}
		}
	}()
	stop := func() map[int32]bool {
		w.Stop()
		<-ended
		return numbers
	}
	t.Cleanup(func() { stop() })
	select {
	case <-shown:
	case <-ended:
		t.Fatal("the watch has ended")
	case <-time.After(patience):
		t.Fatal("the watch does not show the Deployment")
	}
	return stop
}

// TestReplicasGoToAnAutoscaler: a Deployment with five replicas, whose number Git leaves
// to an autoscaler, must keep five at all times, whichever of the two changes comes
// first, also in later deployments.
func TestReplicasGoToAnAutoscaler(t *testing.T) {
	t.Parallel()
	const five, none = "\n  replicas: 5", ""
	type step struct {
		replicas   string
		autoscaler bool
	}
	for name, steps := range map[string][]step{
		"in one commit":        {{five, false}, {none, true}, {none, true}},
		"the autoscaler first": {{five, false}, {five, true}, {none, true}, {none, true}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := clustertest.Shared(t)
			ns, client := cluster.Namespace(t), cluster.Client(t)
			repo := newRepo(t)
			agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
			var seen func() map[int32]bool
			for i, s := range steps {
				commit := repo.Push(t, fmt.Sprint("step ", i), scaledApp(ns, fmt.Sprint("v", i), s.replicas, s.autoscaler))
				agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
				if i == 0 {
					seen = watchReplicas(t, client, ns)
				}
			}
			wantFive(t, client, ns, seen)
		})
	}
}

// TestReplicasOfWhatKubectlAppliedGoToAnAutoscaler: the same for a Deployment that
// kubectl applied.
func TestReplicasOfWhatKubectlAppliedGoToAnAutoscaler(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	f := newFleet(t, 0)
	ns, client := f.ns, cluster.Client(t)
	f.applyAs(t, scaledApp(ns, "v1", "\n  replicas: 5", false), nil)
	seen := watchReplicas(t, client, ns)
	repo := newRepo(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	for _, image := range []string{"v1", "v2"} {
		commit := repo.Push(t, image+" with an autoscaler", scaledApp(ns, image, "", true))
		agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	wantFive(t, client, ns, seen)
}

// wantFive fails the test unless the Deployment has five replicas, the autoscaler manages
// it, and it never had another number.
func wantFive(t *testing.T, client kubernetes.Interface, ns string, seen func() map[int32]bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		hpa, err := client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if hpa.Status.CurrentReplicas == 5 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the autoscaler does not work: %+v", hpa.Status)
		}
	}
	d, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := seen(); *d.Spec.Replicas != 5 || len(got) != 1 || !got[5] {
		t.Errorf("%d replicas, and meanwhile %v; want 5 at all times", *d.Spec.Replicas, got)
	}
}
