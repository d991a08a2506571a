package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// rolloutEnv is a stageEnv whose rollouts fail within seconds, and which can do
// something in the middle of them.
type rolloutEnv struct {
	*stageEnv
	client kubernetes.Interface
}

func newRolloutEnv(t *testing.T) *rolloutEnv {
	t.Helper()
	l := &rolloutEnv{stageEnv: newStageEnv(t)}
	l.client = l.shared.Client(t)
	later := deploy.Deployment{ID: "later", ApplicationID: l.app.ID, Status: deploy.Pending, Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now()}}
	if _, err := l.Store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: later}); err != nil {
		t.Fatal(err)
	}
	l.Policy = rollout.Policy{PodsAfter: 300 * time.Millisecond, FailFastAfter: 3 * time.Second, FailureGrace: 2 * time.Second, WatchdogGrace: 3 * time.Second}
	return l
}

// rolloutCase is a change of what runs and how its rollout is to end.
type rolloutCase struct {
	name   string
	spec   string // of the application, as YAML
	before string // what the last success applied; "": nothing
	change string // what Git declares then; NS stands for the namespace in both

	begin   func(t *testing.T, l *rolloutEnv)                       // before anything
	prepare func(t *testing.T, l *rolloutEnv)                       // before the change is applied
	at      string                                                  // the line of the stage's log at which
	during  func(t *testing.T, l *rolloutEnv, run deploy.StageRun)  // is called
	after   func(t *testing.T, l *rolloutEnv, ended deploy.Rollout) // when the stage has ended
	taken   bool                                                    // by somebody else: the stage is not run again

	want string // how the stage ended, and then every mark, as outcome writes them; after "re:" a regular expression
	sets int    // ReplicaSets in the end; 0: any
}

// runRollouts runs each case through K8S_SYNC, in a namespace of its own. After
// its end the stage is run once more, as after a crash that came before its end
// was stored: everything must stay as it is.
func runRollouts(t *testing.T, cases []rolloutCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			l.spec += c.spec
			if c.begin != nil {
				c.begin(t, l)
			}
			if c.before != "" {
				l.succeed(t, strings.ReplaceAll(c.before, "NS", l.ns))
			}
			if c.prepare != nil {
				c.prepare(t, l)
			}
			l.manifests = strings.ReplaceAll(c.change, "NS", l.ns)
			run := l.deployment("now")
			result := l.run(t, l.Sync(), run, c.at, c.during)
			l.check(t, c.want, l.outcome(t, run, result))
			ended := l.marks(t, run)
			if c.after != nil {
				c.after(t, l, ended[0])
			}
			if !c.taken {
				run.Resumed = true
				if again := l.run(t, l.Sync(), run, "", nil); again.Status != result.Status {
					t.Errorf("the stage run again ended %s: %s", again.Status, again.Reason)
				}
			}
			if diff := gocmp.Diff(ended, l.marks(t, run)); diff != "" {
				t.Errorf("the marks changed after the end (-before +after):\n%s", diff)
			}
			if sets := l.sets(t); c.sets != 0 && len(sets) != c.sets {
				t.Errorf("%d ReplicaSets, want %d", len(sets), c.sets)
			}
		})
	}
}

// check compares how a stage ended with what is wanted.
func (l *rolloutEnv) check(t *testing.T, want, got string) {
	t.Helper()
	if pattern, ok := strings.CutPrefix(want, "re:"); ok {
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(got) {
			t.Fatalf("it ended:\n%s\nwhich does not match:\n%s\nthe log:\n%s", got, pattern, l.said())
		}
	} else if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("how it ended (-want +got):\n%s\nthe log:\n%s", diff, l.said())
	}
}

// run executes a stage. When its log contains at, during is called once, concurrently.
func (l *rolloutEnv) run(t *testing.T, stage Stage, run deploy.StageRun, at string, during func(*testing.T, *rolloutEnv, deploy.StageRun)) deploy.StageResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var background sync.WaitGroup
	defer background.Wait()
	if during != nil {
		var begun atomic.Bool
		begin := sync.OnceFunc(func() {
			begun.Store(true)
			background.Go(func() { during(t, l, run) })
		})
		run.Log = &everyLine{run.Log, func(line string) {
			if strings.Contains(line, at) {
				begin()
			}
		}}
		defer func() {
			if !begun.Load() {
				t.Errorf("the stage has not logged %q:\n%s", at, l.said())
			}
		}()
	}
	return stage.Execute(ctx, run)
}

// marks returns the records of the run's stage. Each has ended, and its end was published
// once.
func (l *rolloutEnv) marks(t *testing.T, run deploy.StageRun) []deploy.Rollout {
	t.Helper()
	records, err := l.Store.Rollouts(t.Context(), store.RolloutQuery{DeploymentID: run.Deployment.ID, StageID: run.Stage.ID})
	if err != nil {
		t.Fatal(err)
	}
	events, err := l.Store.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		published := 0
		for _, e := range events {
			if e.Type == deploy.EventRolloutEnded && e.Key == rec.ID {
				published++
			}
		}
		if published != 1 || !rec.Phase.Terminal() {
			t.Errorf("%s is %s, and its end was published %d times", rec.Workload, rec.Phase, published)
		}
	}
	slices.SortFunc(records, func(a, b deploy.Rollout) int {
		return cmp.Or(cmp.Compare(a.Workload.Name, b.Workload.Name), cmp.Compare(a.Workload.Kind, b.Workload.Kind))
	})
	return records
}

// outcome writes how a stage ended in lines: the stage's result, then for each
// workload its phase and reason. ReplicaSets are named by their revision
// ("web#2"), pods "web-POD".
func (l *rolloutEnv) outcome(t *testing.T, run deploy.StageRun, result deploy.StageResult) string {
	t.Helper()
	lines := []string{strings.TrimPrefix(string(result.Status), "STAGE_")}
	if result.NoRollback {
		lines[0] += ", no rollback"
	}
	if result.Reason != "" {
		lines[0] += ": " + result.Reason
	}
	sets := l.sets(t)
	for _, rec := range l.marks(t, run) {
		lines = append(lines, fmt.Sprintf("%s: %s", rec.Phase, rec.Reason))
		l.checkTarget(t, rec, sets)
	}
	text := strings.ReplaceAll(strings.Join(lines, "\n"), l.ns, "NS")
	for _, rs := range sets {
		text = strings.ReplaceAll(text, "ReplicaSet "+rs.Name, "ReplicaSet "+metav1.GetControllerOf(&rs).Name+"#"+rs.Annotations[rollout.RevisionAnnotation])
	}
	text = stillStopping.ReplaceAllString(text, "no old pod left")
	return podName.ReplaceAllString(text, "$1-POD")
}

var podName = regexp.MustCompile(`\b(web)-[0-9a-z]+-[0-9a-z]{5}\b`)

// stillStopping is the reason of a rollout that ended before its old pods did, which
// depends on the nodes.
var stillStopping = regexp.MustCompile(`\d+ old pods? still stopping`)

// checkTarget: a rollout that ended well names the ReplicaSet that carries its
// template.
func (l *rolloutEnv) checkTarget(t *testing.T, rec deploy.Rollout, sets []appsv1.ReplicaSet) {
	t.Helper()
	if rec.Phase != deploy.RolloutComplete || rec.Workload.Kind != rollout.KindDeployment {
		return
	}
	for i := range sets {
		rs := rollout.FromReplicaSet(&sets[i])
		want := cmp.Or(rec.FollowedDigest, rec.TemplateDigest)
		if rs.Name == rec.TargetName && rs.UID == rec.TargetUID && rs.Number == rec.Revision && rs.OwnerUID == rec.UID && rs.Template.Digest == want {
			return
		}
	}
	t.Errorf("no ReplicaSet is the target of %+v", rec)
}

func (l *rolloutEnv) sets(t *testing.T) []appsv1.ReplicaSet {
	t.Helper()
	list, err := l.client.AppsV1().ReplicaSets(l.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// keepReady makes the pods of never-ready images ready, also those that are made later, until
// hold is called or the test ends.
func (l *rolloutEnv) keepReady(t *testing.T) (hold func()) {
	return clustertest.KeepReady(t, l.client, l.ns, "app=web")
}

// awaitSets waits until there are so many ReplicaSets.
func (l *rolloutEnv) awaitSets(t *testing.T, sets int) {
	t.Helper()
	eventually(t, func() string {
		if n := len(l.sets(t)); n != sets {
			return fmt.Sprintf("%d ReplicaSets, want %d", n, sets)
		}
		return ""
	})
}

// awaitAvailable waits until the Deployment "web" has so many available pods.
func (l *rolloutEnv) awaitAvailable(t *testing.T, pods int) {
	t.Helper()
	eventually(t, func() string {
		d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if n := int(d.Status.AvailableReplicas); n != pods || d.Status.ObservedGeneration < d.Generation {
			return fmt.Sprintf("%d pods are available, want %d", n, pods)
		}
		return ""
	})
}

// patch changes the Deployment "web" as another field manager.
func (l *rolloutEnv) patch(t *testing.T, manager, body string, subresources ...string) {
	t.Helper()
	_, err := l.client.AppsV1().Deployments(l.ns).Patch(context.Background(), "web", types.MergePatchType, []byte(body),
		metav1.PatchOptions{FieldManager: manager}, subresources...)
	if err != nil {
		t.Errorf("patch: %v", err)
	}
}

// scaleTo scales as an autoscaler does.
func (l *rolloutEnv) scaleTo(t *testing.T, replicas int) {
	t.Helper()
	l.patch(t, "kube-controller-manager", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), "scale")
}

// restart does what kubectl rollout restart does.
func (l *rolloutEnv) restart(t *testing.T) {
	t.Helper()
	l.patch(t, "kubectl-rollout", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`)
}

// workload writes a manifest: spec and pod are YAML flow entries of the
// workload's and of the pod's spec, such as "replicas: 3, paused: true".
func workload(kind, name, image, spec string, pod ...string) string {
	if spec != "" {
		spec += ", "
	}
	if kind == rollout.KindStatefulSet {
		spec += "serviceName: web, "
	}
	fields := strings.Join(append(pod, fmt.Sprintf(`containers: [{name: app, image: "web:%s"}]`, image)), ", ")
	return fmt.Sprintf("---\n{apiVersion: apps/v1, kind: %s, metadata: {name: %s}, spec: {%sselector: {matchLabels: {app: %[2]s}}, template: {metadata: {labels: {app: %[2]s}}, spec: {%[4]s}}}}\n",
		kind, name, spec, fields)
}

// slowly has the pods of manifests take a while to become ready.
func slowly(manifests string) string {
	return strings.ReplaceAll(manifests, "labels: {app: web}}, spec", "labels: {app: web, devcluster.piped.dev/ready-delay: 700ms}}, spec")
}

// web is a Deployment of that name.
func web(image, spec string, pod ...string) string {
	return workload(rollout.KindDeployment, "web", image, spec, pod...)
}
