package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/deploy"
)

// migrateJob is deleted by Kubernetes some time after it has finished; see expire.
func migrateJob(image string, order int) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {pipecd.dev/order: "%d"}}
spec:
  ttlSecondsAfterFinished: 600
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/migrate:%s"}]}
`, order, image)
}

// refresh makes the environment's application what the store knows of it.
func (l *stageEnv) refresh(t *testing.T) {
	t.Helper()
	var err error
	if l.app, err = l.Store.Application(t.Context(), l.app.ID); err != nil {
		t.Fatal(err)
	}
}

// expire ends the time of the Job, which has finished, and waits until Kubernetes has deleted it.
func (l *stageEnv) expire(t *testing.T) {
	t.Helper()
	jobs := l.shared.Client(t).BatchV1().Jobs(l.ns)
	now := []byte(`{"spec":{"ttlSecondsAfterFinished":0}}`)
	if _, err := jobs.Patch(t.Context(), "migrate", types.MergePatchType, now, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		_, err := jobs.Get(t.Context(), "migrate", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("the Job is still there (%v)", err)
	})
}

// wantJobWrites fails unless the Job was written so often since the last stage
// began.
func (l *stageEnv) wantJobWrites(t *testing.T, when string, want int) {
	t.Helper()
	got := 0
	for _, w := range l.writes() {
		if strings.HasSuffix(w, "/jobs/migrate") {
			got++
		}
	}
	if got != want {
		t.Errorf("%s the Job was written %d times, want %d", when, got, want)
	}
}

const notAgain = "/migrate finished earlier and was removed by its TTL (ttlSecondsAfterFinished: 600); it is not run again"

// TestExpiredJobIsNotRunAgain: a Job that has done its work and was deleted by its
// TTL is created again only when it has changed in Git.
func TestExpiredJobIsNotRunAgain(t *testing.T) {
	for name, order := range map[string]int{"with the others": 0, "in a wave of its own": -1} {
		t.Run(name, func(t *testing.T) {
			l := newStageEnv(t)
			l.succeed(t, keptManifest+migrateJob("v1", order))
			l.wantJobWrites(t, "at first", 1)
			l.refresh(t)
			l.expire(t)

			result, _ := l.syncAs(t, keptManifest+newManifest+migrateJob("v1", order))
			if result.Status != deploy.StageSuccess {
				t.Fatalf("the next sync ended %s: %s", result.Status, result.Reason)
			}
			l.wantLogged(t, "Job "+l.ns+notAgain, "3 objects: 1 created, 0 configured, 2 unchanged")
			l.wantJobWrites(t, "unchanged", 0)

			result, _ = l.syncAs(t, keptManifest+migrateJob("v2", order))
			if result.Status != deploy.StageSuccess {
				t.Fatalf("the sync of another Job ended %s: %s", result.Status, result.Reason)
			}
			l.wantJobWrites(t, "changed", 1)
		})
	}
}

// TestJobThatIsGoneWithoutASuccess: how a Job ended is not known if its deployment failed;
// it is run again.
func TestJobThatIsGoneWithoutASuccess(t *testing.T) {
	l := newStageEnv(t)
	if result, _ := l.syncAs(t, migrateJob("v1", 0)); result.Status != deploy.StageSuccess {
		t.Fatalf("the stage ended %s: %s", result.Status, result.Reason)
	}
	l.expire(t)
	if result, _ := l.syncAs(t, migrateJob("v1", 0)); result.Status != deploy.StageSuccess {
		t.Fatalf("the repeated stage ended %s: %s", result.Status, result.Reason)
	}
	l.wantJobWrites(t, "again", 1)
}

// TestExpiredJobIsTakenOver: when live objects are taken over, a Job that is gone counts as
// completed, then and later.
func TestExpiredJobIsTakenOver(t *testing.T) {
	l := newStageEnv(t)
	l.manifests = keptManifest + migrateJob("v1", 0)
	run := l.deployment(success)
	run.Deployment.Trigger.TakeOver = true
	l.mustSucceed(t, l.Sync(), run)
	l.wantLogged(t, "Job "+l.ns+notAgain)
	l.complete(t)
	l.refresh(t)
	if result, _ := l.syncAs(t, l.manifests+newManifest); result.Status != deploy.StageSuccess {
		t.Fatalf("the next sync ended %s: %s", result.Status, result.Reason)
	}
	l.wantLogged(t, "Job "+l.ns+notAgain)
	l.wantJobWrites(t, "after the take-over", 0)
}
