package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// firstJob is applied before everything else; fate says how its pod ends.
func firstJob(fate string) string {
	return `---
apiVersion: batch/v1
kind: Job
metadata: {name: first, annotations: {pipecd.dev/order: "-1"}}
spec:
  backoffLimit: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/job:` + fate + `"}]}
`
}

const webDeployment = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "registry.example/web:v1"}]}}}
`

// TestWaves: what has a lower order is healthy before anything else is written.
func TestWaves(t *testing.T) {
	l := newStageEnv(t)
	l.manifests = webDeployment + "---\n" + keptManifest + firstJob("never-ready")
	run := l.deployment(success)
	letEnd := sync.OnceFunc(func() { l.letEnd(t, "first") })
	run.Log = &everyLine{run.Log, func(line string) {
		if strings.Contains(line, "Waiting for Job ") { // it lasts until it was waited for
			letEnd()
		}
	}}
	l.mustSucceed(t, l.Sync(), run)
	var patched []string
	for _, w := range l.writes() {
		patched = append(patched, w[strings.LastIndex(w, "/")+1:])
	}
	if !slices.Equal(patched, []string{"first", "kept", "web"}) {
		t.Errorf("written in the order %v", patched)
	}
	job, err := l.shared.Client(t).BatchV1().Jobs(l.ns).Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web, err := l.shared.Client(t).AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if done := job.Status.CompletionTime; done == nil || web.CreationTimestamp.Before(done) {
		t.Errorf("the Deployment was created at %s, the Job was complete at %s", web.CreationTimestamp, done)
	}
	for _, line := range []string{
		"Waiting for Job " + l.ns + "/first: ",
		"Job " + l.ns + "/first is complete",
	} {
		if !slices.ContainsFunc(l.log.lines, func(s string) bool { return strings.Contains(s, line) }) {
			t.Errorf("the log does not say %q:\n%s", line, strings.Join(l.log.lines, "\n"))
		}
	}
}

// letEnd lets the pod of a Job whose image is never-ready end well.
func (l *stageEnv) letEnd(t *testing.T, job string) {
	t.Helper()
	eventually(t, func() string {
		if pods, err := clustertest.Behave(t.Context(), l.shared.Client(t), l.ns, "job-name="+job, "ready"); err != nil || pods != 1 {
			return fmt.Sprintf("Job %s has %d pods, %v", job, pods, err)
		}
		return ""
	})
}

// TestFailedWave: a wave that fails keeps the next one from being written.
func TestFailedWave(t *testing.T) {
	l := newStageEnv(t)
	l.manifests = webDeployment + firstJob("crash")
	run := l.deployment(success)
	result := l.Sync().Execute(t.Context(), run)
	if result.Status != deploy.StageFailure || result.NoRollback || !strings.Contains(result.Reason, "Job "+l.ns+"/first: it failed: BackoffLimitExceeded") {
		t.Fatalf("the stage ended %s: %s (no rollback: %t)", result.Status, result.Reason, result.NoRollback)
	}
	if _, err := l.shared.Client(t).AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment of the next wave: %v, want that there is none", err)
	}
}

// TestUnhealthyEndsTheWaitForRollouts: a Job that fails ends the stage while a
// rollout is still in progress.
func TestUnhealthyEndsTheWaitForRollouts(t *testing.T) {
	l := newStageEnv(t)
	l.manifests = strings.Replace(webDeployment, ":v1", ":never-ready", 1) + strings.Replace(firstJob("crash"), `"-1"`, `"0"`, 1)
	begin := time.Now()
	result := l.Sync().Execute(t.Context(), l.deployment(success))
	if result.Status != deploy.StageFailure || !strings.HasPrefix(result.Reason, "Job "+l.ns+"/first: it failed") {
		t.Errorf("the stage ended %s: %s", result.Status, result.Reason)
	}
	if took := time.Since(begin); took > 5*time.Minute { // the rollout would go on for 10
		t.Errorf("it took %s", took)
	}
	records, err := l.Store.Rollouts(t.Context(), store.RolloutQuery{DeploymentID: success})
	if err != nil || len(records) != 1 || records[0].Phase != deploy.RolloutSuperseded || !strings.Contains(records[0].Reason, "given up because Job "+l.ns+"/first failed") {
		t.Errorf("records %+v, %v", records, err)
	}
}

// TestHealthOfWhatEarlierDeploymentsWrote: what was healthy when it was deployed and
// is not any more does not fail a deployment that leaves it alone.
func TestHealthOfWhatEarlierDeploymentsWrote(t *testing.T) {
	l := newStageEnv(t)
	const pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: lone}\nspec: {containers: [{name: c, image: \"registry.example/lone:v1\"}]}\n"
	l.succeed(t, keptManifest+pod)
	relabel := []byte(`{"metadata":{"labels":{"devcluster.piped.dev/behavior":"crash-loop"}}}`)
	pods := l.shared.Client(t).CoreV1().Pods(l.ns)
	if _, err := pods.Patch(t.Context(), "lone", types.MergePatchType, relabel, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		p, err := pods.Get(t.Context(), "lone", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse {
				return ""
			}
		}
		return "the pod is ready"
	})
	l.manifests = keptManifest + pod + newManifest
	l.mustSucceed(t, l.Sync(), l.deployment("now"))
}
