package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/git/gittest"
)

// chaosRevision is the annotation of a Deployment that holds its revision.
const chaosRevision = "chaos/revision"

// rolloutEnv is a repository with applications of one Deployment each, the functions
// that commit to it, and an autoscaler.
type rolloutEnv struct {
	namespace string
	repo      *gittest.Repo
	kube      kubernetes.Interface
	random    *rand.Rand
	oracle    *rolloutOracle

	apps    []*rolloutApp
	head    string
	commits map[string]rolloutCommit
}

// rolloutCommit is the content of each application in a commit, by its directory.
type rolloutCommit struct {
	at       time.Time
	contents map[string]rolloutContent
}

// rolloutContent is an application at a commit. Content that does not change the workload
// has the image of an earlier revision.
type rolloutContent struct {
	revision int
	image    string
	behavior string // of its pods; "ready" unless they are made to fail
}

func (c rolloutContent) sound() bool { return c.behavior == "ready" }

// rolloutApp is one application.
type rolloutApp struct {
	dir   string
	shape rolloutShape
	now   rolloutContent
	since time.Time // of the last commit
}

// rolloutShape is a configuration of an application.
type rolloutShape struct {
	replicas string // the field in Git; "" leaves it to the scaler
	scaled   bool   // by the test's scaler
	hpa      bool   // by an autoscaler of the cluster
	strategy string
	delay    string // until a pod is ready
	queue    string
}

// rolloutShapes returns the shapes that applications get in turn.
func rolloutShapes() []rolloutShape {
	return []rolloutShape{
		{replicas: "replicas: 2", strategy: "RollingUpdate", delay: "0s", queue: "newest"},
		{scaled: true, strategy: "RollingUpdate", delay: "0s", queue: "newest"},
		{hpa: true, strategy: "RollingUpdate", delay: "0s", queue: "newest"},
		{replicas: "replicas: 1", strategy: "RollingUpdate", delay: "2s", queue: "newest"},
		{replicas: "replicas: 2", strategy: "Recreate", delay: "0s", queue: "newest"},
		{scaled: true, strategy: "RollingUpdate", delay: "1s", queue: "replace"},
	}
}

func newRolloutEnv(t *testing.T, applications int, namespace string, kube kubernetes.Interface, random *rand.Rand) *rolloutEnv {
	w := &rolloutEnv{
		namespace: namespace, repo: newRepo(t), kube: kube, random: random,
		oracle: watchRollouts(t, kube, namespace), commits: map[string]rolloutCommit{},
	}
	shapes := rolloutShapes()
	for i := range applications {
		w.apps = append(w.apps, &rolloutApp{dir: fmt.Sprintf("app-%02d", i), shape: shapes[i%len(shapes)]})
	}
	return w
}

const rolloutAppConfig = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: %s
  input: {namespace: %s}
  trigger: {queue: %s}
`

const rolloutAppWorkload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, annotations: {%[2]s: "%[3]d"}}
spec:
  %[4]s
  progressDeadlineSeconds: %[5]d
  strategy: {type: %[6]s}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s, devcluster.piped.dev/behavior: %[7]s}
      annotations: {devcluster.piped.dev/ready-delay: %[8]s}
    spec: {containers: [{name: c, image: "%[9]s"}]}
`

const rolloutAppScaler = `---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s, annotations: {devcluster.piped.dev/scale-flap: "1,3,5s"}}
spec:
  minReplicas: 1
  maxReplicas: 4
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`

// files returns the current files of the application. A rollout that is meant to fail has
// a short timeout.
func (a *rolloutApp) files(namespace string) map[string]string {
	deadline := 120
	if !a.now.sound() {
		deadline = 2
	}
	workload := fmt.Sprintf(rolloutAppWorkload, a.dir, chaosRevision, a.now.revision, a.shape.replicas, deadline,
		a.shape.strategy, a.now.behavior, a.shape.delay, a.now.image)
	if a.shape.hpa {
		workload += fmt.Sprintf(rolloutAppScaler, a.dir)
	}
	return map[string]string{
		a.dir + "/app.pipecd.yaml": fmt.Sprintf(rolloutAppConfig, a.dir, namespace, a.shape.queue),
		a.dir + "/app.yaml":        workload,
	}
}

// begin adds all applications, without any flaw.
func (w *rolloutEnv) begin() error {
	for _, a := range w.apps {
		a.next("ready", true)
	}
	return w.commit(w.apps)
}

// next creates the application's next revision, with or without a new image.
func (a *rolloutApp) next(behavior string, rolls bool) {
	a.now.revision++
	if rolls {
		a.now.behavior, a.now.image = behavior, fmt.Sprintf("registry.example/c:v%d", a.now.revision)
	}
	a.since = time.Now()
}

// act commits a change to applications whose last change is live, and to some whose last
// change is pending.
func (w *rolloutEnv) act() error {
	var touched []*rolloutApp
	for _, a := range w.apps {
		if !w.oracle.wasLive(a.dir, strconv.Itoa(a.now.revision)) && time.Since(a.since) < time.Minute && w.random.IntN(1000) >= 5 {
			continue
		}
		behavior, chance := "ready", w.random.IntN(100)
		switch {
		case chance < 3:
			behavior = "image-pull-error"
		case chance < 6:
			behavior = "crash-loop"
		}
		a.next(behavior, chance < 90)
		touched = append(touched, a)
	}
	if len(touched) == 0 {
		return nil
	}
	return w.commit(touched)
}

func (w *rolloutEnv) commit(touched []*rolloutApp) error {
	files := map[string]string{}
	for _, a := range touched {
		maps.Copy(files, a.files(w.namespace))
	}
	c := rolloutCommit{at: time.Now(), contents: map[string]rolloutContent{}}
	for _, a := range w.apps {
		c.contents[a.dir] = a.now
	}
	if err := w.repo.Write(files); err != nil {
		return err
	}
	hash, err := w.repo.Commit(fmt.Sprintf("%d applications", len(touched)))
	if err != nil {
		return err
	}
	w.head, w.commits[hash] = hash, c
	return nil
}

// scale sets the replicas of one of the applications left to the scaler.
func (w *rolloutEnv) scale(ctx context.Context, random *rand.Rand) error {
	a := w.apps[random.IntN(len(w.apps))]
	if !a.shape.scaled {
		return nil
	}
	replicas := 1 + random.Int32N(4)
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	w.oracle.asked(a.dir, replicas)
	_, err := w.kube.AppsV1().Deployments(w.namespace).Patch(ctx, a.dir, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "scaler"}, "scale")
	if apierrors.IsNotFound(err) || errors.Is(err, context.Canceled) {
		return nil // the Deployment does not exist yet, or the test ends
	}
	return err
}
