package app

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// rolloutOracle watches Deployments and pods without the agent and its proxy, and records
// their history. It reads no ReplicaSets and no conditions of Deployments: its only
// evidence for a rollout is the pods.
type rolloutOracle struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	deployments map[string]*oracleDeployment // by name
	rollouts    int                          // how many began
	marks       map[string]bool              // kinds of which the mark was seen: see catchUp
}

// oracleDeployment is the history of one Deployment.
type oracleDeployment struct {
	epochs    []*epoch
	pods      map[string]*oraclePod // by name
	revisions map[string]bool       // revisions that were live
	scaled    int                   // how often its replicas changed
	asked     []wantedReplicas      // scalings that the test has asked for and that were not seen yet
}

// epoch is the time in which a Deployment had one template: from the start of its rollout
// until the next one.
type epoch struct {
	image      string
	generation int64 // of the write that brought the template
	begun      time.Time
	wanted     []wantedReplicas
	shown      time.Time // when the API first showed it complete by the rule of `kubectl rollout status`
}

type wantedReplicas struct {
	since    time.Time
	replicas int32
}

// oraclePod is the life of one pod by the cluster's times, in whole seconds: an event
// happened within the second after its time. Zero means not yet.
type oraclePod struct {
	image                 string
	created, ready, ended time.Time
}

// oracleLag is the maximum delay of the oracle's observation after the agent's.
const oracleLag = 5 * time.Second

// watchRollouts begins to watch a namespace.
func watchRollouts(t *testing.T, kube kubernetes.Interface, namespace string) *rolloutOracle {
	ctx, stop := context.WithCancel(context.Background())
	o := &rolloutOracle{stop: stop, deployments: map[string]*oracleDeployment{}, marks: map[string]bool{}}
	deployments, pods := kube.AppsV1().Deployments(namespace), kube.CoreV1().Pods(namespace)
	list, err := deployments.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	follow(ctx, t, &o.running, list.ResourceVersion, o.see, deployments, pods)
	t.Cleanup(o.close)
	return o
}

// watchable is a client of a resource.
type watchable interface {
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow calls see, also concurrently, with each change of the resources since a version, until ctx ends.
func follow(ctx context.Context, t *testing.T, running *sync.WaitGroup, since string, see func(*testing.T, watch.Event), resources ...watchable) {
	t.Helper()
	for _, r := range resources {
		w, err := watchtools.NewRetryWatcherWithContext(ctx, since, &cache.ListWatch{WatchFuncWithContext: r.Watch})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for event := range w.ResultChan() {
				see(t, event)
			}
		})
	}
}

// close ends the watches.
func (o *rolloutOracle) close() {
	o.stop()
	o.running.Wait()
}

// oracleMark is the name of a Deployment, and the label of its pod, that belong to no application.
const oracleMark = "oracle-mark"

// catchUp waits until both watches have shown everything that has happened so far: each of them shows
// the mark, which is created now, after that.
func (o *rolloutOracle) catchUp(t *testing.T, kube kubernetes.Interface, namespace string) {
	t.Helper()
	labels := map[string]string{"app": oracleMark}
	mark := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: oracleMark},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:v1"}}},
			},
		},
	}
	if _, err := kube.AppsV1().Deployments(namespace).Create(t.Context(), mark, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the oracle to see the mark and its pod", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.marks["Deployment"] && o.marks["Pod"]
	})
}

func (o *rolloutOracle) see(t *testing.T, event watch.Event) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		if object.Name == oracleMark {
			o.marks["Deployment"] = true
			return
		}
		if o.of(object.Name).deployment(object, now) {
			o.rollouts++
		}
	case *corev1.Pod:
		if object.Labels["app"] == oracleMark {
			o.marks["Pod"] = true
			return
		}
		o.of(object.Labels["app"]).pod(object, event.Type == watch.Deleted, now)
	default:
		t.Errorf("the oracle's watch of the cluster has failed: %v", event)
	}
}

func (o *rolloutOracle) of(name string) *oracleDeployment {
	if o.deployments[name] == nil {
		o.deployments[name] = &oracleDeployment{pods: map[string]*oraclePod{}, revisions: map[string]bool{}}
	}
	return o.deployments[name]
}

// deployment records a version of the Deployment and reports whether its template differs
// from the previous one.
func (d *oracleDeployment) deployment(object *appsv1.Deployment, now time.Time) (began bool) {
	d.revisions[object.Annotations[chaosRevision]] = true
	image, replicas := object.Spec.Template.Spec.Containers[0].Image, *object.Spec.Replicas
	began = len(d.epochs) == 0 || d.epochs[len(d.epochs)-1].image != image
	if began {
		if len(d.epochs) > 0 && d.replicas() != replicas {
			d.scaled++
		}
		d.epochs = append(d.epochs, &epoch{image: image, generation: object.Generation, begun: now, wanted: []wantedReplicas{{now, replicas}}})
	}
	e := d.epochs[len(d.epochs)-1]
	if d.replicas() != replicas {
		e.wanted = append(e.wanted, wantedReplicas{d.askedSince(replicas, now), replicas})
		d.scaled++
	}
	if s := object.Status; e.shown.IsZero() && s.ObservedGeneration >= object.Generation && s.UpdatedReplicas >= replicas &&
		s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas {
		e.shown = now
	}
	return began
}

// asked notes that the test asks for another number of pods now, which the cluster does not date.
func (o *rolloutOracle) asked(name string, replicas int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.deployments[name]; d != nil && len(d.epochs) > 0 {
		d.asked = append(d.asked, wantedReplicas{time.Now(), replicas})
	}
}

// askedSince returns since when a number of pods, seen now, can have been wanted: since the test asked
// for it, in the last minute, else now.
func (d *oracleDeployment) askedSince(replicas int32, now time.Time) time.Time {
	for i, a := range d.asked {
		if a.replicas == replicas && now.Sub(a.since) < time.Minute {
			d.asked = d.asked[i+1:]
			return a.since
		}
	}
	return now
}

// replicas returns the last wanted number of pods.
func (d *oracleDeployment) replicas() int32 {
	wanted := d.epochs[len(d.epochs)-1].wanted
	return wanted[len(wanted)-1].replicas
}

func (d *oracleDeployment) pod(object *corev1.Pod, gone bool, now time.Time) {
	p := d.pods[object.Name]
	if p == nil {
		p = &oraclePod{image: object.Spec.Containers[0].Image, created: object.CreationTimestamp.Time}
		d.pods[object.Name] = p
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.ready.IsZero() {
			p.ready = c.LastTransitionTime.Time
		}
	}
	switch at := object.DeletionTimestamp; {
	case !p.ended.IsZero():
	case at != nil && object.DeletionGracePeriodSeconds != nil:
		p.ended = at.Add(-time.Duration(*object.DeletionGracePeriodSeconds) * time.Second)
	case at != nil:
		p.ended = at.Time
	case gone:
		p.ended = now
	}
}

// began returns how many rollouts have begun.
func (o *rolloutOracle) began() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rollouts
}

// wasLive reports whether a revision of an application has been live.
func (o *rolloutOracle) wasLive(app, revision string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.deployments[app] != nil && o.deployments[app].revisions[revision]
}

// epochOf returns the index of the epoch that held a generation, -1 if none.
func (d *oracleDeployment) epochOf(generation int64) int {
	after := slices.IndexFunc(d.epochs, func(e *epoch) bool { return e.generation > generation })
	if after < 0 {
		after = len(d.epochs)
	}
	return after - 1
}

// leftover returns a pod of another template than the epoch's that was certainly alive at
// a time, nil if there is none.
func (d *oracleDeployment) leftover(e *epoch, at time.Time) *oraclePod {
	for _, p := range d.pods {
		if p.image != e.image && p.created.Add(time.Second).Before(at) && (p.ended.IsZero() || p.ended.After(at)) {
			return p
		}
	}
	return nil
}

// ready returns the maximum number of pods of the epoch's template that can have been
// ready at a time.
func (d *oracleDeployment) ready(e *epoch, at time.Time) (n int32) {
	for _, p := range d.pods {
		if p.image == e.image && !p.ready.IsZero() && !p.ready.After(at) && (p.ended.IsZero() || p.ended.Add(oracleLag).After(at)) {
			n++
		}
	}
	return n
}

// need returns how many pods had to be ready at a time: the lowest number of wanted
// replicas since the rollout began.
func (e *epoch) need(at time.Time) int32 {
	least := e.wanted[0].replicas
	for _, w := range e.wanted {
		if !w.since.After(at.Add(oracleLag)) {
			least = min(least, w.replicas)
		}
	}
	return least
}
