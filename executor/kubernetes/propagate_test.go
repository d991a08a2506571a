package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/observe"
	"github.com/c785c783/piped/piped/store"
)

// nudging runs a Nudger of the environment's cluster until the returned function is called.
func (l *stageEnv) nudging(t *testing.T) (stop func()) {
	t.Helper()
	c, release, err := l.Clusters.Hold("one")
	if err != nil {
		t.Fatal(err)
	}
	controller := watch.New(c.Cluster)
	nudger := observe.NewNudger(observe.NudgerConfig{Cluster: c.Cluster, Controller: controller, Store: l.Store})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- nudger.Run(ctx) }()
	go func() { ended <- controller.Run(ctx) }()
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		release()
	}
	t.Cleanup(stop)
	return stop
}

const soon = "  configPropagation: {nudge: {delay: 100ms, repeatAfter: 1s}}\n"

// configMap is a ConfigMap.
func configMap(name, content string) string {
	return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {k: " + content + "}}\n"
}

// mounting is a Deployment that mounts ConfigMap files, and also reads some by its
// environment.
func mounting(replicas int, env ...string) string {
	container := `{name: app, image: "web:v1", volumeMounts: [{name: v, mountPath: /v}]`
	for _, name := range env {
		container += ", envFrom: [{configMapRef: {name: " + name + "}}]"
	}
	return fmt.Sprintf("---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: %d, selector: {matchLabels: {app: web}}, "+
		"template: {metadata: {labels: {app: web}}, spec: {containers: [%s}], volumes: [{name: v, configMap: {name: files}}]}}}}\n", replicas, container)
}

// nudgedPods returns what the annotation says on the pods that are not being deleted, by name.
func (l *rolloutEnv) nudgedPods(t *testing.T) map[string]string {
	t.Helper()
	list, err := l.client.CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			out[pod.Name] = pod.Annotations[manifest.AnnotationConfigSync]
		}
	}
	return out
}

// podPatches counts the writes to pods, and forgets all requests.
func (l *stageEnv) podPatches() (n int) {
	for _, r := range l.writes() {
		if strings.HasPrefix(r, "PATCH ") && strings.Contains(r, "/pods/") {
			n++
		}
	}
	return n
}

// awaitDone waits until no pod is left to be nudged.
func (l *rolloutEnv) awaitDone(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		due, err := l.Store.Propagations(t.Context(), store.PropagationQuery{Due: true})
		if err != nil {
			return err.Error()
		}
		if len(due) > 0 {
			return fmt.Sprintf("left: %+v", due)
		}
		return ""
	})
}

// change deploys manifests and returns how the rollout of the Deployment ended.
func (l *rolloutEnv) change(t *testing.T, manifests string) (deploy.StageRun, deploy.RolloutPhase) {
	t.Helper()
	l.manifests = manifests
	run := l.deployment("now")
	l.mustSucceed(t, l.Sync(), run)
	marks := l.marks(t, run)
	if len(marks) != 1 {
		t.Fatalf("%d rollouts", len(marks))
	}
	return run, marks[0].Phase
}

// TestPodsThatMountAChangedConfigMapAreNudged: each pod is annotated, twice, and nothing
// rolls out; the log names them. The rollback nudges them again, and a repeated run of the
// stage nudges none.
func TestPodsThatMountAChangedConfigMapAreNudged(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += soon
	stop := l.nudging(t)
	l.succeed(t, configMap("files", "a")+mounting(2))
	l.awaitAvailable(t, 2)
	if patches := l.podPatches(); patches > 0 {
		t.Errorf("the first deployment nudged %d pods", patches)
	}
	before := l.sets(t)
	generation := l.generation(t)

	run, phase := l.change(t, configMap("files", "b")+mounting(2))
	if phase != deploy.RolloutNoRollout || l.generation(t) != generation {
		t.Errorf("the rollout ended %s, generation %d to %d", phase, generation, l.generation(t))
	}
	first := l.nudgedPods(t)
	values := map[string]bool{}
	for name, value := range first {
		values[strings.TrimSuffix(value, ".2")] = true
		if !strings.Contains(l.said(), name) {
			t.Errorf("the log does not name %s:\n%s", name, l.said())
		}
	}
	if len(first) != 2 || len(values) != 1 || values[""] {
		t.Fatalf("nudged: %v\n%s", first, l.said())
	}
	if want := "ConfigMap NS/files has changed: all 2 running pods of Deployment NS/web that mount it were nudged: "; !strings.Contains(l.said(), want) {
		t.Errorf("the log does not say %q:\n%s", want, l.said())
	}
	l.awaitDone(t)
	for name, value := range l.nudgedPods(t) {
		if !strings.HasSuffix(value, ".2") || !values[strings.TrimSuffix(value, ".2")] {
			t.Errorf("%s was not nudged again: %q", name, value)
		}
	}
	if patches := l.podPatches(); patches != 4 {
		t.Errorf("%d writes to pods, want 4", patches)
	}

	run.Resumed = true
	l.mustSucceed(t, l.Sync(), run)
	stop()
	l.nudging(t) // the agent is started again
	l.rollBack(t, run)
	l.awaitDone(t)
	for name, value := range l.nudgedPods(t) {
		if !strings.HasSuffix(value, ".2") || values[strings.TrimSuffix(value, ".2")] {
			t.Errorf("%s was not nudged for the rollback: %q", name, value)
		}
	}
	if patches := l.podPatches(); patches != 4 {
		t.Errorf("%d writes to pods, want 4", patches)
	}
	if diff := gocmp.Diff(names(before), names(l.sets(t))); diff != "" || l.generation(t) != generation {
		t.Errorf("nudging pods rolled out something:\n%s", diff)
	}
}

// TestPodsOfARestoredConfigMapAreNudged: pods that mount it have seen the content written
// by hand. They are nudged for the restored one, although they were nudged for the same
// content before.
func TestPodsOfARestoredConfigMapAreNudged(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += soon
	l.nudging(t)
	l.succeed(t, configMap("files", "a")+mounting(1))
	l.awaitAvailable(t, 1)
	run, _ := l.change(t, configMap("files", "b")+mounting(1))
	l.awaitDone(t)

	byHand := []byte(`{"data":{"k":"by hand"}}`)
	if _, err := l.client.CoreV1().ConfigMaps(l.ns).Patch(t.Context(), "files", types.MergePatchType, byHand, metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	run.Resumed = true
	for _, want := range []int{2, 0} { // the second time there is nothing to put back
		l.podPatches() // forgets what was before
		l.mustSucceed(t, l.Sync(), run)
		l.awaitDone(t)
		if patches := l.podPatches(); patches != want {
			t.Errorf("%d writes to the pod, want %d:\n%s", patches, want, l.said())
		}
	}
}

// TestPodsAreNudgedBeforeTheNextWave: the nudges of a wave do not wait for those after it,
// nor for its own rollouts, and are not repeated by a later wave.
func TestPodsAreNudgedBeforeTheNextWave(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += soon
	l.nudging(t)
	early := func(manifest, name string) string {
		return strings.Replace(manifest, "metadata: {name: "+name+"}", `metadata: {name: `+name+`, annotations: {pipecd.dev/order: "-1"}}`, 1)
	}
	files := func(content string) string { return early(configMap("files", content), "files") }
	gate := func(image string) string { return early(workload(rollout.KindDeployment, "gate", image, ""), "gate") }
	l.succeed(t, files("a")+mounting(1))
	l.awaitAvailable(t, 1)
	nudged := func() (value string) {
		for name, annotation := range l.nudgedPods(t) {
			if strings.HasPrefix(name, "web-") {
				value = annotation
			}
		}
		return value
	}

	l.manifests = files("b") + gate("never-ready") + mounting(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	run, ended := l.deployment("now"), make(chan deploy.StageResult, 1)
	go func() { ended <- l.Sync().Execute(ctx, run) }()
	eventually(t, func() string {
		if nudged() == "" {
			return "the pod was not nudged"
		}
		return ""
	})
	select {
	case result := <-ended:
		t.Errorf("the stage ended %s: %s", result.Status, result.Reason)
	default:
	}
	stop()
	<-ended
	l.awaitDone(t)
	l.podPatches() // forgets what was before
	l.manifests = files("b") + gate("v1") + mounting(1)
	l.mustSucceed(t, l.Sync(), l.deployment("later"))
	l.awaitDone(t)
	if patches := l.podPatches(); patches > 0 {
		t.Errorf("%d writes to the pod, want none:\n%s", patches, l.said())
	}
}

// bearers are a Pod, a Job that does not end and a ReplicaSet, which mount ConfigMap
// files and read settings by their environment.
func bearers() string {
	const pod = `spec: {containers: [{name: app, image: "web:v1", volumeMounts: [{name: v, mountPath: /v}], envFrom: [{configMapRef: {name: settings}}]}], ` +
		`restartPolicy: %s, volumes: [{name: v, configMap: {name: files}}]}`
	of := func(labels, restart string) string {
		return "template: {metadata: {labels: {" + labels + "}}, " + fmt.Sprintf(pod, restart) + "}"
	}
	return "---\n{apiVersion: v1, kind: Pod, metadata: {name: bare}, " + fmt.Sprintf(pod, "Always") + "}\n" +
		"---\n{apiVersion: batch/v1, kind: Job, metadata: {name: long}, spec: {" + of("devcluster.piped.dev/behavior: never-ready", "Never") + "}}\n" +
		"---\n{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: set}, spec: {replicas: 2, selector: {matchLabels: {of: set}}, " + of("of: set", "Always") + "}}\n"
}

// startBearers deploys bearers until their pods run; the Job would keep the stage waiting.
func (l *rolloutEnv) startBearers(t *testing.T) {
	t.Helper()
	l.manifests = configMap("files", "a") + configMap("settings", "a") + bearers()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan deploy.StageResult, 1)
	go func() { ended <- l.Sync().Execute(ctx, l.deployment(success)) }()
	eventually(t, func() string {
		select {
		case result := <-ended:
			t.Fatalf("%s: %s\n%s", result.Status, result.Reason, l.said())
		default:
		}
		if pods := l.nudgedPods(t); len(pods) != 4 || !strings.Contains(l.said(), "5 created") {
			return fmt.Sprintf("%d pods run\n%s", len(pods), l.said())
		}
		return ""
	})
	stop()
	<-ended
	l.complete(t)
}

// TestPodsWithoutARolloutAreNudged: a Pod of Git itself, and those of a Job and of a
// ReplicaSet, also in mode restart. What they read by their environment stays, and the
// log says so.
func TestPodsWithoutARolloutAreNudged(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "restart"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			l.spec += "  configPropagation: {mode: " + mode + ", nudge: {repeatAfter: 0s}}\n"
			l.nudging(t)
			l.startBearers(t)
			l.podPatches() // forgets what was before

			l.manifests = configMap("files", "b") + configMap("settings", "b") + bearers()
			run := l.deployment("now")
			l.mustSucceed(t, l.Sync(), run)
			l.awaitDone(t)
			for name, value := range l.nudgedPods(t) {
				if value == "" {
					t.Errorf("%s was not nudged", name)
				}
			}
			if patches := l.podPatches(); patches != 4 {
				t.Errorf("%d writes to pods, want 4", patches)
			}
			for _, want := range []string{
				"5 objects: 0 created, 2 configured, 3 unchanged",
				"ConfigMap NS/files has changed: all 1 running pods of Pod NS/bare that mount it were nudged: bare",
				"ConfigMap NS/files has changed: all 1 running pods of Job NS/long that mount it were nudged: ",
				"ConfigMap NS/files has changed: all 2 running pods of ReplicaSet NS/set that mount it were nudged: ",
				"ConfigMap NS/settings has changed, and the pods of ReplicaSet NS/set keep what they have of it until they are replaced: they read it by its environment",
			} {
				if !strings.Contains(l.said(), want) {
					t.Errorf("the log does not say %q:\n%s", want, l.said())
				}
			}

			l.podPatches()
			run.Resumed = true
			l.mustSucceed(t, l.Sync(), run)
			l.awaitDone(t)
			if writes := l.writes(); len(writes) > 0 {
				t.Errorf("a sync without a change wrote %v", writes)
			}
		})
	}
}

// TestModeOffSaysWhatTheKubeletDoes: files that are mounted follow without a nudge, and
// the log does not claim the contrary.
func TestModeOffSaysWhatTheKubeletDoes(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += "  configPropagation: {mode: off}\n"
	l.nudging(t)
	l.succeed(t, configMap("files", "a")+configMap("settings", "a")+mounting(1, "settings"))
	l.change(t, configMap("files", "b")+configMap("settings", "b")+mounting(1, "settings"))
	for _, want := range []string{
		"ConfigMap NS/files has changed, and the pods of Deployment NS/web that mount it are not nudged, because configPropagation is off: the kubelet updates their files within about a minute",
		"ConfigMap NS/settings has changed, and the pods of Deployment NS/web keep what they have of it until they are restarted: they read it by its environment, and configPropagation is off",
	} {
		if !strings.Contains(l.said(), want) {
			t.Errorf("the log does not say %q:\n%s", want, l.said())
		}
	}
	if patches := l.podPatches(); patches > 0 {
		t.Errorf("%d writes to pods", patches)
	}
}

// replacePod deletes the Deployment's only pod and waits for the next one.
func (l *rolloutEnv) replacePod(t *testing.T) {
	t.Helper()
	before := l.nudgedPods(t)
	for name := range before {
		if err := l.client.CoreV1().Pods(l.ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() string {
		now := l.nudgedPods(t)
		for name := range now {
			if _, same := before[name]; same {
				return name + " still runs"
			}
		}
		if len(now) != 1 {
			return fmt.Sprintf("%d pods run", len(now))
		}
		return ""
	})
}

// startedBefore waits until the Deployment's pods started two seconds ago: the cluster's
// times are whole seconds.
func (l *rolloutEnv) startedBefore(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		list, err := l.client.CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range list.Items {
			for _, c := range pod.Status.ContainerStatuses {
				if c.State.Running == nil || time.Since(c.State.Running.StartedAt.Time) < 2*time.Second {
					return pod.Name + " has only just started"
				}
			}
		}
		return ""
	})
}

// TestPodsThatReadOtherContentAreRestarted: a ConfigMap is changed by hand, and a sync
// restores it. A pod that read it by its environment meanwhile is restarted, once, if its
// mode says so; one that was there before is not.
func TestPodsThatReadOtherContentAreRestarted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, mode, patch string
		replaced          bool
		want              deploy.RolloutPhase
		said              string
	}{
		{"mode auto", "auto", `{"data":{"k":"by hand"}}`, true, deploy.RolloutComplete, "read it so: POD. They are restarted"},
		{"a key that was removed", "auto", `{"data":{"k":null}}`, true, deploy.RolloutComplete, "read it so: POD. They are restarted"},
		{"mode off", "off", `{"data":{"k":"by hand"}}`, true, deploy.RolloutNoRollout, "read it so: POD. They keep what they read until they are restarted: " +
			"they read it by its environment, and configPropagation is off"},
		{"no pod since", "auto", `{"data":{"k":"by hand"}}`, false, deploy.RolloutNoRollout, ""},
		{"another field", "auto", `{"metadata":{"labels":{"pipecd.dev/managed-by":"x"}}}`, true, deploy.RolloutNoRollout, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			l.spec += "  configPropagation: {mode: " + c.mode + "}\n"
			l.nudging(t)
			git := configMap("files", "a") + configMap("settings", "a") + mounting(1, "settings")
			l.succeed(t, git)
			l.awaitAvailable(t, 1)
			l.startedBefore(t)
			if _, err := l.client.CoreV1().ConfigMaps(l.ns).Patch(t.Context(), "settings", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
				t.Fatal(err)
			}
			if c.replaced {
				l.replacePod(t)
			}
			pods := l.nudgedPods(t)
			run, phase := l.change(t, git)
			if phase != c.want {
				t.Errorf("the rollout ended %s, want %s\n%s", phase, c.want, l.said())
			}
			for name := range pods {
				if want := strings.ReplaceAll(c.said, "POD", name); !strings.Contains(l.said(), want) {
					t.Errorf("the log does not say %q:\n%s", want, l.said())
				}
			}
			if c.said == "" && strings.Contains(l.said(), "read it so") {
				t.Errorf("the log says of pods that are as Git says:\n%s", l.said())
			}
			generation := l.generation(t)
			run.Resumed = true
			l.mustSucceed(t, l.Sync(), run)
			if l.generation(t) != generation {
				t.Errorf("the stage run again rolled out again:\n%s", l.said())
			}
		})
	}
}

func names[T any, P interface {
	*T
	GetName() string
}](all []T) (out []string) {
	for i := range all {
		out = append(out, P(&all[i]).GetName())
	}
	slices.Sort(out)
	return out
}

func (l *rolloutEnv) generation(t *testing.T) int64 {
	t.Helper()
	d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Generation
}

// TestWhatIsReadByTheEnvironmentRollsOut, and a change of mounted files nudges.
func TestWhatIsReadByTheEnvironmentRollsOut(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += soon
	l.nudging(t)
	l.succeed(t, configMap("files", "a")+configMap("settings", "a")+mounting(1, "settings"))
	l.awaitAvailable(t, 1)
	if _, phase := l.change(t, configMap("files", "a")+configMap("settings", "b")+mounting(1, "settings")); phase != deploy.RolloutComplete {
		t.Errorf("the environment changed, and the rollout ended %s", phase)
	}
	if patches := l.podPatches(); patches != 0 || len(l.sets(t)) != 2 {
		t.Errorf("%d writes to pods, %d ReplicaSets", patches, len(l.sets(t)))
	}
}

// TestModeNudgeSaysWhatItCannotDo: nothing restarts, and the log says that pods keep what
// they read.
func TestModeNudgeSaysWhatItCannotDo(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += "  configPropagation: {mode: nudge}\n"
	l.nudging(t)
	l.succeed(t, configMap("files", "a")+configMap("settings", "a")+mounting(1, "settings"))
	if _, phase := l.change(t, configMap("files", "a")+configMap("settings", "b")+mounting(1, "settings")); phase != deploy.RolloutNoRollout {
		t.Errorf("the rollout ended %s", phase)
	}
	const want = "ConfigMap NS/settings has changed, and the pods of Deployment NS/web keep what they have of it until they are restarted: they read it by its environment"
	if !strings.Contains(l.said(), want) {
		t.Errorf("the log does not say %q:\n%s", want, l.said())
	}
}

// TestImmutableConfigMapIsExplained: the API server refuses the change, and the reason
// says what to do.
func TestImmutableConfigMapIsExplained(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	immutable := func(content string) string {
		return strings.Replace(configMap("files", content), ", data:", ", immutable: true, data:", 1)
	}
	l.succeed(t, immutable("a")+mounting(1))
	l.manifests = immutable("b") + mounting(1)
	result := l.Sync().Execute(t.Context(), l.deployment("now"))
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "cannot be changed; undo the change, give the object a new name") {
		t.Errorf("%s: %s", result.Status, result.Reason)
	}
}

// TestKilledBeforePodsAreNudged: the agent ends after the ConfigMap was written. The
// repeated run nudges the pods, each as often as without that.
func TestKilledBeforePodsAreNudged(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += soon
	l.succeed(t, configMap("files", "a")+mounting(2))
	l.awaitAvailable(t, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	l.answered = func(r *http.Request) error {
		if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") || !strings.Contains(r.URL.Path, "/configmaps/") {
			return nil
		}
		cancel(deploy.StopShutdown)
		return errors.New("killed")
	}
	l.manifests = configMap("files", "b") + mounting(2)
	run := l.deployment("now")
	if result := l.Sync().Execute(ctx, run); result.Status == deploy.StageSuccess {
		t.Fatal("the stage ended well")
	}
	l.answered = nil
	if patches := l.podPatches(); patches != 0 {
		t.Fatalf("%d writes to pods", patches)
	}
	l.nudging(t)
	run.Resumed = true
	l.mustSucceed(t, l.Sync(), run)
	l.awaitDone(t)
	if patches := l.podPatches(); patches != 4 {
		t.Errorf("%d writes to pods, want 4\n%s", patches, l.said())
	}
}

// TestPodsOfLaterAreNotNudged: what is created after the change has the new content.
func TestPodsOfLaterAreNotNudged(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += "  configPropagation: {nudge: {delay: 0s, repeatAfter: 0s}}\n"
	l.succeed(t, configMap("files", "a")+mounting(1))
	l.awaitAvailable(t, 1)
	old := l.nudgedPods(t)
	l.manifests = configMap("files", "b") + mounting(1)
	run := l.deployment("now")
	later := func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
		eventually(t, func() string { // a second later by the cluster's clock, which pods are dated by
			rows, err := l.Store.Propagations(t.Context(), store.PropagationQuery{Due: true})
			if err != nil || len(rows) != 1 || time.Since(rows[0].ChangedAt) < 2*time.Second {
				return fmt.Sprintf("%+v %v", rows, err)
			}
			return ""
		})
		l.scaleTo(t, 3)
		l.awaitAvailable(t, 3)
		l.nudging(t) // not before the pods are there
	}
	if result := l.run(t, l.Sync(), run, "1 configured", later); result.Status != deploy.StageSuccess {
		t.Fatalf("%s: %s", result.Status, result.Reason)
	}
	l.awaitDone(t)
	for name, value := range l.nudgedPods(t) {
		if _, wasThere := old[name]; (value != "") != wasThere {
			t.Errorf("%s was there: %t, and was nudged with %q", name, wasThere, value)
		}
	}
	if patches := l.podPatches(); patches != 1 {
		t.Errorf("%d writes to pods", patches)
	}
}

// TestManyPodsAreNudgedInTime: no faster than the rate, and no more than asked for.
func TestManyPodsAreNudgedInTime(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += "  configPropagation: {nudge: {delay: 0s, repeatAfter: 0s, maxPods: 290, ratePerSecond: 100}}\n"
	l.nudging(t)
	l.succeed(t, configMap("files", "a")+mounting(300))
	l.podPatches()
	began := time.Now()
	l.change(t, configMap("files", "b")+mounting(300))
	l.awaitDone(t)
	if took := time.Since(began); took < 2800*time.Millisecond {
		t.Errorf("290 pods were nudged within %s", took)
	}
	if patches := l.podPatches(); patches != 290 {
		t.Errorf("%d writes to pods", patches)
	}
	if !strings.Contains(l.said(), "10 pods of Deployment NS/web were left out, because configPropagation.nudge.maxPods is 290") {
		t.Errorf("the log does not say what was left out:\n%s", l.said())
	}
}

// TestNamedObjects: a Secret that is not in Git is watched, and the pods that mount it
// are nudged when its content has changed, and not for a label.
func TestNamedObjects(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += "  configPropagation: {scope: named, named: [{kind: ConfigMap, name: files}], nudge: {delay: 0s, repeatAfter: 0s}}\n"
	files := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "files"}, Data: map[string]string{"k": "a"}}
	if _, err := l.client.CoreV1().ConfigMaps(l.ns).Create(t.Context(), files, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.nudging(t)
	l.succeed(t, mounting(2))
	l.awaitAvailable(t, 2)
	patch := func(body string) {
		t.Helper()
		if _, err := l.client.CoreV1().ConfigMaps(l.ns).Patch(t.Context(), "files", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
			t.Fatal(err)
		}
	}
	versions := func() string {
		rows, err := l.Store.Propagations(t.Context(), store.PropagationQuery{Named: true})
		if err != nil || len(rows) != 1 {
			t.Fatalf("%v %v", rows, err)
		}
		return fmt.Sprint(rows[0].Named)
	}
	seen := versions()
	patch(`{"metadata":{"labels":{"a":"b"}}}`)
	eventually(t, func() string {
		if versions() == seen {
			return "the change was not seen"
		}
		return ""
	})
	if patches := l.podPatches(); patches != 0 {
		t.Errorf("%d pods were nudged for a label", patches)
	}
	patch(`{"data":{"k":"b"}}`)
	eventually(t, func() string {
		for name, value := range l.nudgedPods(t) {
			if value == "" {
				return name + " was not nudged"
			}
		}
		return ""
	})
	l.awaitDone(t) // the cluster shows a write before its answer is counted
	if patches := l.podPatches(); patches != 2 || len(l.sets(t)) != 1 {
		t.Errorf("%d writes to pods, %d ReplicaSets", patches, len(l.sets(t)))
	}
}

// TestNamedObjectsThatDoNotReachPods: the log of the stage that writes a workload names
// what its pods would not see, and never says that it has changed.
func TestNamedObjectsThatDoNotReachPods(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.spec += "  configPropagation: {scope: named, named: [{kind: ConfigMap, name: outside}], nudge: {delay: 0s, repeatAfter: 0s}}\n"
	outside := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Data: map[string]string{"k": "a"}}
	if _, err := l.client.CoreV1().ConfigMaps(l.ns).Create(t.Context(), outside, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.nudging(t)
	l.succeed(t, configMap("files", "a")+mounting(1, "outside"))
	const want = "ConfigMap NS/outside is not in Git: when it changes, the pods of Deployment NS/web keep what they have of it until they are restarted: they read it by its environment"
	if !strings.Contains(l.said(), want) {
		t.Errorf("the log does not say %q:\n%s", want, l.said())
	}
	l.change(t, configMap("files", "b")+mounting(1, "outside"))
	if said := l.said(); strings.Contains(said, "NS/outside has changed") || strings.Count(said, want) != 1 {
		t.Errorf("of an object that has not changed the log says:\n%s", said)
	}
}
