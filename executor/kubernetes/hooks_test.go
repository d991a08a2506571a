package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// hookJob is a Job; behavior is that of its pod in the test cluster.
func hookJob(name, behavior string) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec: {backoffLimit: 0, template: {metadata: {labels: {devcluster.piped.dev/behavior: %s}}, spec: {restartPolicy: Never, containers: [{name: c, image: "hook:1"}]}}}
`, name, behavior)
}

// order returns the names whose objects were written, in the order of writing.
func (l *stageEnv) order() []string {
	var names []string
	for _, w := range l.writes() {
		verb, path, _ := strings.Cut(w, " ")
		names = append(names, verb+" "+path[strings.LastIndex(path, "/")+1:])
	}
	return names
}

func (l *stageEnv) job(t *testing.T, name string) *batchv1.Job {
	t.Helper()
	job, err := l.shared.Client(t).BatchV1().Jobs(l.ns).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func (l *stageEnv) said() string {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	return strings.ReplaceAll(strings.Join(l.log.lines, "\n"), l.ns, "NS")
}

// always is a hook of a phase that runs at each deployment.
func always(phase manifest.HookPhase, weight int) manifest.Hook {
	return manifest.Hook{Phase: phase, Weight: weight, Install: true, Upgrade: true}
}

func TestHooksRunBeforeAndAfter(t *testing.T) {
	l := newStageEnv(t)
	l.hooks = map[string]manifest.Hook{
		"second": always(manifest.HookPre, 5), "first": always(manifest.HookPre, -1), "config": always(manifest.HookPre, -5),
		"last": always(manifest.HookPost, 0), "install-only": {Phase: manifest.HookPre, Install: true}, "test": {Phase: manifest.HookOther},
	}
	config := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\n"
	manifests := keptManifest + hookJob("last", "ready") + hookJob("second", "ready") + hookJob("test", "ready") + hookJob("first", "ready") + hookJob("install-only", "ready") + config
	l.succeed(t, manifests)
	want := []string{"PATCH config", "PATCH first", "PATCH install-only", "PATCH second", "PATCH kept", "PATCH last"}
	if diff := cmp.Diff(want, l.order()); diff != "" {
		t.Errorf("first deployment (-want +got):\n%s", diff)
	}
	old := l.job(t, "first")

	run := l.deployment("now")
	l.mustSucceed(t, l.Sync(), run)
	want = []string{"PATCH config", "DELETE first", "PATCH first", "DELETE second", "PATCH second", "DELETE last", "PATCH last"}
	if diff := cmp.Diff(want, l.order()); diff != "" {
		t.Errorf("second deployment (-want +got):\n%s", diff)
	}
	if now := l.job(t, "first"); now.UID == old.UID || now.Annotations[manifest.AnnotationHookRun] != "now/pre" || now.Status.Succeeded != 1 {
		t.Errorf("the Job of the second deployment: %v", now.ObjectMeta)
	}
	hooked, err := l.shared.Client(t).CoreV1().ConfigMaps(l.ns).Get(t.Context(), "config", metav1.GetOptions{})
	if err != nil || hooked.Annotations[manifest.AnnotationHookRun] != "now/pre" { // else it would count as left over
		t.Errorf("the ConfigMap that is a hook: %v, %v", hooked, err)
	}
	for _, line := range []string{
		"Hook Job NS/install-only (web/app.yaml:25) is not run before the sync: it is for installations, and the application has an earlier success",
		"Hook Job NS/test (web/app.yaml:15) is not run: a deployment has no such phase",
		"Job NS/first will be deleted and created anew, because it ran before",
		"Job NS/first is complete",
	} {
		if !strings.Contains(l.said(), line) {
			t.Errorf("the log does not say %q:\n%s", line, l.said())
		}
	}

	items, err := l.Store.Inventory(t.Context(), l.app.ID)
	if err != nil || len(items) != 1 || items[0].Object.Name != "kept" {
		t.Errorf("hooks are in the inventory: %v %v", items, err)
	}
	// The same stage again is what an interrupted one does: nothing runs twice.
	run.Stage, run.Resumed = run.Deployment.Stages[0], true
	l.mustSucceed(t, l.Sync(), run)
	if got := l.order(); len(got) > 0 {
		t.Errorf("the stage that was run again wrote %v", got)
	}
	l.rollBack(t, run)
	if got := l.order(); len(got) > 0 || !strings.Contains(l.said(), "A rollback runs no hooks; commit commit- has 6") {
		t.Errorf("the rollback wrote %v and said:\n%s", got, l.said())
	}
}

// TestHooksAreNotRunWhenTakingOver: the live objects were installed before, and must not
// change.
func TestHooksAreNotRunWhenTakingOver(t *testing.T) {
	l := newStageEnv(t)
	l.hooks = map[string]manifest.Hook{"first": always(manifest.HookPre, 0), "last": always(manifest.HookPost, 0)}
	l.manifests = keptManifest + hookJob("first", "ready") + hookJob("last", "ready")
	run := l.deployment("now")
	run.Deployment.RunningCommit, run.Deployment.Trigger.TakeOver = "", true
	l.mustSucceed(t, l.Sync(), run)
	if diff := cmp.Diff([]string{"PATCH kept"}, l.order()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if want := "is not run before the sync: the live objects are taken over as they are"; !strings.Contains(l.said(), want) {
		t.Errorf("the log does not say %q:\n%s", want, l.said())
	}
}

// TestAHookOfTwoPhasesRunsInBoth: each phase runs it in the deployments that have the
// phase, and neither runs it twice.
func TestAHookOfTwoPhasesRunsInBoth(t *testing.T) {
	l := newStageEnv(t)
	l.hooks = map[string]manifest.Hook{"both": always(manifest.HookPre, 0), "turns": {Phase: manifest.HookPre, Weight: 1, Install: true}}
	l.after = map[string]manifest.Hook{"both": always(manifest.HookPost, 1), "turns": {Phase: manifest.HookPost, Upgrade: true}}
	manifests := keptManifest + hookJob("both", "ready") + hookJob("turns", "ready")
	l.succeed(t, manifests)
	if diff := cmp.Diff([]string{"PATCH both", "PATCH turns", "PATCH kept", "DELETE both", "PATCH both"}, l.order()); diff != "" {
		t.Errorf("first deployment (-want +got):\n%s", diff)
	}
	if want := "Hook Job NS/turns (web/app.yaml:10) is not run after the sync: it is for upgrades"; !strings.Contains(l.said(), want) {
		t.Errorf("the log does not say %q:\n%s", want, l.said())
	}

	run := l.deployment("now")
	l.mustSucceed(t, l.Sync(), run)
	want := []string{"DELETE both", "PATCH both", "DELETE turns", "PATCH turns", "DELETE both", "PATCH both"}
	if diff := cmp.Diff(want, l.order()); diff != "" {
		t.Errorf("second deployment (-want +got):\n%s", diff)
	}
	if got := l.job(t, "both").Annotations[manifest.AnnotationHookRun]; got != "now/post" {
		t.Errorf("the last run of the hook is %s", got)
	}
	run.Stage, run.Resumed = run.Deployment.Stages[0], true
	l.mustSucceed(t, l.Sync(), run)
	if got := l.order(); len(got) > 0 {
		t.Errorf("the stage that was run again wrote %v", got)
	}
}

func TestAFailingPreHookChangesNothingElse(t *testing.T) {
	l := newStageEnv(t)
	l.hooks = map[string]manifest.Hook{"migrate": always(manifest.HookPre, 0), "later": always(manifest.HookPre, 1), "after": always(manifest.HookPost, 0)}
	l.manifests = keptManifest + hookJob("migrate", "crash-loop") + hookJob("later", "ready") + hookJob("after", "ready")
	result := l.Sync().Execute(t.Context(), l.deployment("now"))
	if result.Status != deploy.StageFailure || !strings.HasPrefix(result.Reason, "hook Job "+l.ns+"/migrate: it failed: BackoffLimitExceeded: ") || !strings.Contains(result.Reason, "exit code 1") {
		t.Errorf("%s: %s", result.Status, result.Reason)
	}
	if diff := cmp.Diff([]string{"PATCH migrate"}, l.order()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestHooksOfASetThatIsRefused: a hook cannot be undone, so it does not run for objects
// that will not be applied.
func TestHooksOfASetThatIsRefused(t *testing.T) {
	l := newStageEnv(t)
	l.hooks = map[string]manifest.Hook{"migrate": always(manifest.HookPre, 0)}
	l.manifests = strings.Replace(keptManifest, "metadata", "dataa: {}\nmetadata", 1) + hookJob("migrate", "ready")
	result := l.Sync().Execute(t.Context(), l.deployment("now"))
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "nothing was changed") || l.job(t, "migrate") != nil {
		t.Errorf("%s: %s; the hook: %v", result.Status, result.Reason, l.job(t, "migrate"))
	}
}

func TestHooksAreDeletedWhenTheyAskForIt(t *testing.T) {
	l := newStageEnv(t)
	onSuccess, onFailure := always(manifest.HookPre, 0), always(manifest.HookPost, 0)
	onSuccess.DeleteOnSuccess, onFailure.DeleteOnFailure = true, true
	l.hooks = map[string]manifest.Hook{"good": onSuccess, "bad": onFailure}
	l.manifests = keptManifest + hookJob("good", "ready") + hookJob("bad", "crash-loop")
	run := l.deployment("now")
	if result := l.Sync().Execute(t.Context(), run); result.Status != deploy.StageFailure {
		t.Errorf("%s: %s", result.Status, result.Reason)
	}
	if l.job(t, "good") != nil || l.job(t, "bad") != nil {
		t.Error("the hooks are still there")
	}
	// Run again, the one that ended well is not run twice though it is gone, and
	// the one that was begun is not either: its end may not have been seen.
	l.order()
	run.Stage, run.Resumed = run.Deployment.Stages[0], true
	result := l.Sync().Execute(t.Context(), run)
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "is gone before its end was seen; it is not run twice") || len(l.order()) > 0 {
		t.Errorf("%s: %s", result.Status, result.Reason)
	}
}

// TestAHookThatWasInterrupted: the agent is killed while a hook runs. The next
// run waits for it, and does not begin another.
func TestAHookThatWasInterrupted(t *testing.T) {
	l := newStageEnv(t)
	l.hooks = map[string]manifest.Hook{"slow": always(manifest.HookPre, 0)}
	l.manifests = keptManifest + strings.Replace(hookJob("slow", "ready"), "{labels: {", `{labels: {devcluster.piped.dev/ready-delay: 2s, `, 1)
	for _, afterAnswer := range []bool{false, true} {
		t.Run(fmt.Sprintf("its creation known: %v", afterAnswer), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			patched := false
			l.answered = func(r *http.Request) error {
				if !strings.HasSuffix(r.URL.Path, "/jobs/slow") || r.URL.Query().Has("dryRun") {
					return nil
				}
				patched = patched || r.Method == http.MethodPatch
				if !patched || r.Method == http.MethodPatch && afterAnswer {
					return nil
				}
				cancel(deploy.StopShutdown)
				return errors.New("killed")
			}
			run := l.deployment(map[bool]string{false: success, true: "now"}[afterAnswer])
			if result := l.Sync().Execute(ctx, run); result.Status != deploy.StageFailure {
				t.Fatalf("%s: %s", result.Status, result.Reason)
			}
			l.answered = nil
			if !slices.Contains(l.order(), "PATCH slow") {
				t.Fatal("the hook was not begun")
			}
			run.Stage, run.Resumed = run.Deployment.Stages[0], true
			l.mustSucceed(t, l.Sync(), run)
			if slices.Contains(l.order(), "PATCH slow") {
				t.Error("the hook was begun twice")
			}
			if job := l.job(t, "slow"); job.Status.Succeeded != 1 || job.Annotations[manifest.AnnotationHookRun] != run.Deployment.ID+"/pre" {
				t.Errorf("the hook: %v %v", job.ObjectMeta, job.Status)
			}
		})
	}
}
