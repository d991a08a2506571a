package app

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// foreignOracle watches the workloads of a namespace, their ReplicaSets and
// ControllerRevisions, and their pods, without the agent and its proxy. A number that a
// controller gives to a revision is the start of a rollout; its end is decided by the pods,
// and by what `kubectl rollout status` reads. Each of its watches may be behind the agent and the
// other watches, so it also notes when the cluster made a change that it sees.
type foreignOracle struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	byName map[string]*foreignWorkload
	dated  map[types.UID]time.Time // when the cluster last wrote each object, as far as it was seen
	pods   int64                   // resource version of a pod that was seen last
}

// foreignWorkload is the history of the workloads of one name, which is that of one kind.
type foreignWorkload struct {
	oracleDeployment // its pods, by UID; it has no epochs
	lives            []*foreignLife
}

// foreignLife is the history of one workload from its creation to its deletion.
type foreignLife struct {
	uid, kind string
	scales    []seenScale
	paused    time.Time // when it was last seen paused
	deleted   time.Time // when its deletion was first seen
	deleting  time.Time // when it began, as happened says
	rollouts  []*foreignRollout
	templates []seenTemplate
	complete  int64 // resource version that `kubectl rollout status` calls complete; 0: the last one seen is not
}

// seenScale is a number of pods that a workload wanted, from a resource version on.
type seenScale struct {
	wantedReplicas
	version int64
}

// seenTemplate is a template of a workload, and when it was made. A Deployment that is
// recreated or paused has no revision of it yet.
type seenTemplate struct {
	identity string
	made     time.Time // as happened says
	version  int64     // resource version of the workload
	written  time.Time // by the cluster's clock, in whole seconds
}

// foreignRollout is one revision of a workload. Its epoch has the identity of the template
// as image.
type foreignRollout struct {
	epoch
	revision int64
	made     time.Time // when it was made, as happened says; begun is when it was seen
	version  int64     // resource version of the object that has the number
	changed  time.Time // when the API did not show it complete any more, as happened says
	hidden   time.Time // when no object had the number any more, as happened says: it was given to a later revision, or removed
}

// kubernetesRestartedAt is the annotation of `kubectl rollout restart`.
const kubernetesRestartedAt = "kubectl.kubernetes.io/restartedAt"

// identity identifies a template of the test: its image, and its last restart by hand.
func identity(annotations map[string]string, containers []corev1.Container) string {
	if at := annotations[kubernetesRestartedAt]; at != "" {
		return containers[0].Image + "@" + at
	}
	return containers[0].Image
}

// imageOf returns the image of an identity.
func imageOf(identity string) string {
	image, _, _ := strings.Cut(identity, "@")
	return image
}

// watchForeign begins to watch a namespace.
func watchForeign(t *testing.T, kube kubernetes.Interface, namespace string) *foreignOracle {
	ctx, stop := context.WithCancel(context.Background())
	o := &foreignOracle{stop: stop, byName: map[string]*foreignWorkload{}, dated: map[types.UID]time.Time{}}
	list, err := kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	apps := kube.AppsV1()
	follow(ctx, t, &o.running, list.ResourceVersion, o.see, apps.Deployments(namespace), apps.StatefulSets(namespace), apps.DaemonSets(namespace),
		apps.ReplicaSets(namespace), apps.ControllerRevisions(namespace), kube.CoreV1().Pods(namespace))
	t.Cleanup(o.close)
	return o
}

// close ends the watches.
func (o *foreignOracle) close() {
	o.stop()
	o.running.Wait()
}

func (o *foreignOracle) see(t *testing.T, event watch.Event) {
	now, gone := time.Now(), event.Type == watch.Deleted
	o.mu.Lock()
	defer o.mu.Unlock()
	made := now
	if object, ok := event.Object.(metav1.Object); ok {
		made = o.happened(object, now)
	}
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		s := object.Status
		// What is paused does not end.
		shown := !object.Spec.Paused && s.ObservedGeneration >= object.Generation && s.UpdatedReplicas >= *object.Spec.Replicas &&
			s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas
		life := o.life("Deployment", object.Name, string(object.UID))
		if object.Spec.Paused {
			life.paused = now
		}
		life.workload(&object.ObjectMeta, &object.Spec.Template, *object.Spec.Replicas, shown, gone, made, now)
	case *appsv1.StatefulSet:
		s, wanted := object.Status, *object.Spec.Replicas
		shown := s.ObservedGeneration >= object.Generation && s.UpdatedReplicas >= wanted && s.ReadyReplicas >= wanted && s.CurrentRevision == s.UpdateRevision
		o.life("StatefulSet", object.Name, string(object.UID)).workload(&object.ObjectMeta, &object.Spec.Template, wanted, shown, gone, made, now)
	case *appsv1.DaemonSet:
		s := object.Status
		shown := s.ObservedGeneration >= object.Generation && s.UpdatedNumberScheduled >= s.DesiredNumberScheduled && s.NumberAvailable >= s.DesiredNumberScheduled
		o.life("DaemonSet", object.Name, string(object.UID)).workload(&object.ObjectMeta, &object.Spec.Template, s.DesiredNumberScheduled, shown, gone, made, now)
	case *appsv1.ReplicaSet:
		number, _ := strconv.ParseInt(object.Annotations["deployment.kubernetes.io/revision"], 10, 64)
		o.revision(object, number, identity(object.Spec.Template.Annotations, object.Spec.Template.Spec.Containers), gone, made, now)
	case *appsv1.ControllerRevision:
		var data struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if err := json.Unmarshal(object.Data.Raw, &data); err != nil {
			t.Errorf("ControllerRevision %s: %v", object.Name, err)
			return
		}
		o.revision(object, object.Revision, identity(data.Spec.Template.Annotations, data.Spec.Template.Spec.Containers), gone, made, now)
	case *corev1.Pod:
		o.pods = versionOf(object)
		o.of(object.Labels["app"]).pod(object, gone, now)
	default:
		t.Errorf("the oracle's watch of the cluster has failed: %v", event)
	}
}

// happened returns when the cluster made the change of an object that is seen now, at most a second
// late, since its times are whole seconds. What the object does not date was made now.
func (o *foreignOracle) happened(object metav1.Object, now time.Time) time.Time {
	var last time.Time
	for _, entry := range object.GetManagedFields() {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	if !last.After(o.dated[object.GetUID()]) {
		return now
	}
	o.dated[object.GetUID()] = last
	return earliest(now, last.Add(time.Second))
}

// sawPods reports whether the watch of the pods has shown a resource version.
func (o *foreignOracle) sawPods(version int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pods >= version
}

func (o *foreignOracle) of(name string) *foreignWorkload {
	if o.byName[name] == nil {
		o.byName[name] = &foreignWorkload{oracleDeployment: oracleDeployment{pods: map[string]*oraclePod{}}}
	}
	return o.byName[name]
}

// life returns the history of a workload.
func (o *foreignOracle) life(kind, name, uid string) *foreignLife {
	w := o.of(name)
	if l := w.life(uid); l != nil {
		return l
	}
	w.lives = append(w.lives, &foreignLife{uid: uid, kind: kind})
	return w.lives[len(w.lives)-1]
}

func (w *foreignWorkload) life(uid string) *foreignLife {
	for _, l := range w.lives {
		if l.uid == uid {
			return l
		}
	}
	return nil
}

// workload records a version of the workload; shown is whether `kubectl rollout status` calls
// its rollout complete.
func (l *foreignLife) workload(meta *metav1.ObjectMeta, template *corev1.PodTemplateSpec, replicas int32, shown, gone bool, made, now time.Time) {
	if l.deleted.IsZero() && (gone || meta.DeletionTimestamp != nil) {
		l.deleted, l.deleting = now, now
		if at := meta.DeletionTimestamp; at != nil {
			l.deleting = earliest(now, at.Add(time.Second))
		}
	}
	scaled := l.scale(replicas, versionOf(meta), made, now)
	live := identity(template.Annotations, template.Spec.Containers)
	if n := len(l.templates); n == 0 || l.templates[n-1].identity != live {
		l.templates = append(l.templates, seenTemplate{identity: live, made: made, version: versionOf(meta), written: lastWrite(meta)})
	}
	l.complete = 0
	if shown {
		l.complete = versionOf(meta)
	}
	if len(l.rollouts) == 0 {
		return
	}
	r := l.rollouts[len(l.rollouts)-1]
	if scaled {
		r.wanted = append(r.wanted, l.scales[len(l.scales)-1].wantedReplicas)
	}
	switch shown = shown && r.image == live; {
	case shown && r.shown.IsZero():
		r.shown = now
	case !shown && !r.shown.IsZero() && r.changed.IsZero():
		r.changed = made
	}
}

// scale records how many pods a version of the workload wants, and reports whether that has changed.
func (l *foreignLife) scale(replicas int32, version int64, made, now time.Time) bool {
	since := now
	if n := len(l.scales); n > 0 {
		switch before := l.scales[n-1].replicas; {
		case before == replicas:
			return false
		case before > replicas: // the agent may have been content with fewer before this was seen
			since = made
		}
	}
	l.scales = append(l.scales, seenScale{wantedReplicas{since, replicas}, version})
	return true
}

// wantedSince returns what a workload wanted at a resource version and later: a revision may be seen
// after the workload was scaled again.
func (l *foreignLife) wantedSince(version int64) (wanted []wantedReplicas) {
	for i, s := range l.scales {
		if i+1 == len(l.scales) || l.scales[i+1].version > version {
			wanted = append(wanted, s.wantedReplicas)
		}
	}
	return wanted
}

// lastWrite returns when the object itself was last written, by the cluster's clock.
func lastWrite(meta *metav1.ObjectMeta) (at time.Time) {
	for _, entry := range meta.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(at) {
			at = entry.Time.Time
		}
	}
	return at
}

// revision records a version of a ReplicaSet or ControllerRevision.
func (o *foreignOracle) revision(object metav1.Object, number int64, template string, gone bool, made, now time.Time) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || number == 0 {
		return
	}
	l := o.life(owner.Kind, owner.Name, string(owner.UID))
	var last *foreignRollout
	for _, r := range l.rollouts {
		if r.image == template && r.hidden.IsZero() && (r.revision != number || gone) {
			r.hidden = made // the number of an object with this template has changed
		}
		last = r
	}
	if !gone && (last == nil || number > last.revision) {
		r := &foreignRollout{revision: number, made: made, version: versionOf(object), epoch: epoch{image: template, begun: now, wanted: l.wantedSince(versionOf(object))}}
		if len(r.wanted) == 0 { // the watch of the workloads is behind
			r.wanted = []wantedReplicas{{now, 0}}
		}
		// The watch of the revisions may be behind that of the workloads, which then shows nothing more.
		if l.complete > versionOf(object) && l.templates[len(l.templates)-1].identity == template {
			r.shown = now
		}
		l.rollouts = append(l.rollouts, r)
	}
}

// versionOf returns the resource version of an object, which grows with every write to the cluster.
func versionOf(object metav1.Object) int64 {
	version, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return version
}

// changed reports whether the template was another one than that of r since r began, before a time.
func (l *foreignLife) changed(r *foreignRollout, by time.Time) bool {
	own := r.version // of its template: a controller that has read that gives it a revision after the next one was written
	for _, s := range l.templates {
		if s.identity == r.image && s.version <= r.version {
			own = s.version
		}
	}
	return slices.ContainsFunc(l.templates, func(s seenTemplate) bool {
		return s.identity != r.image && s.version > own && s.made.Before(by)
	})
}

// written returns when the template of r was written: its controller may give it a revision
// much later, and the oracle may see that later still.
func (l *foreignLife) written(r *foreignRollout) time.Time {
	at := r.begun
	for _, s := range l.templates {
		if s.identity == r.image && !s.written.IsZero() && !s.written.After(r.begun) {
			at = s.written
		}
	}
	return at
}

// pod records a version of a pod.
func (w *foreignWorkload) pod(object *corev1.Pod, gone bool, now time.Time) {
	object.Name = string(object.UID) // a pod of a StatefulSet has the name of the one before
	object.Spec.Containers[0].Image = identity(object.Annotations, object.Spec.Containers)
	w.oracleDeployment.pod(object, gone, now)
}
