package workloads

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Limits of what an Observer reads.
const (
	FillTimeout = 5 * time.Second // bounds the wait for the first fill of a cache

	podLimit        = 500 // pods read of one workload
	eventPods       = 5   // pods whose events are read
	eventsPerObject = 200
)

// byOwner indexes ReplicaSets by the UID of their controller.
const byOwner = "owner"

// byLabel indexes workloads by their application label.
const byLabel = "application"

// workloadResources are the resources of the kinds that have rollouts, and
// workloadTypes their Go types.
var (
	workloadResources = map[string]schema.GroupVersionResource{
		rollout.KindDeployment:  {Group: "apps", Version: "v1", Resource: "deployments"},
		rollout.KindStatefulSet: {Group: "apps", Version: "v1", Resource: "statefulsets"},
		rollout.KindDaemonSet:   {Group: "apps", Version: "v1", Resource: "daemonsets"},
	}
	workloadTypes = map[string]runtime.Object{
		rollout.KindDeployment: &appsv1.Deployment{}, rollout.KindStatefulSet: &appsv1.StatefulSet{}, rollout.KindDaemonSet: &appsv1.DaemonSet{},
	}
)

// Resource returns the resource of a kind that has rollouts, the zero value for other kinds.
func Resource(kind string) schema.GroupVersionResource { return workloadResources[kind] }

var replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}

var controllerRevisions = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}

// Object is a cached workload.
type Object struct {
	metav1.ObjectMeta
	Workload    rollout.Workload
	Application string // the value of its application label
	Selected    bool   // by the Selection of the Observer
}

// Observer watches the workloads of one cluster for package rollout: those with the
// application label, or all with Observer.All, and all ReplicaSets, which do not carry it. Its caches contain only
// what decides a rollout. Where the agent may not watch the whole cluster, it watches the
// namespaces passed to Follow, Subscribe and Cached. It is safe for concurrent use.
type Observer struct {
	cluster    *cluster.Cluster
	controller *watch.Controller

	selection *Selection              // nil: only workloads with the application label
	workloads map[string]*watch.Scope // by kind
	sets      *watch.Scope
	revisions *watch.Scope // ControllerRevisions

	mu      sync.Mutex
	wake    map[string]map[*func()]bool // callbacks by subscription key
	watched map[string]*watch.Scope     // the started scopes of workloads, by kind
	changed []func(application string, w rollout.Workload)

	lease *lease
}

var _ rollout.Observer = (*Observer)(nil)

// NewObserver returns an Observer of the workloads with the application label, whose caches
// run in controller.
func NewObserver(c *cluster.Cluster, controller *watch.Controller) *Observer {
	return NewObserverOf(c, controller, nil)
}

// NewObserverOf is NewObserver for all workloads of the cluster, of which it marks those that
// selection selects. A nil selection means those with the application label.
func NewObserverOf(c *cluster.Cluster, controller *watch.Controller, selection *Selection) *Observer {
	o := &Observer{
		cluster: c, controller: controller, selection: selection,
		wake: map[string]map[*func()]bool{}, watched: map[string]*watch.Scope{}, workloads: map[string]*watch.Scope{},
	}
	label := manifest.LabelApplication
	if selection != nil {
		label = ""
	}
	for kind, gvr := range workloadResources {
		o.workloads[kind] = controller.Scope(watch.Resource{
			GroupVersionResource: gvr, Typed: workloadTypes[kind], Selector: label, Transform: o.keepWorkload,
			Indexes: cache.Indexers{byLabel: workloadApplication},
		})
	}
	o.sets = controller.Scope(watch.Resource{
		GroupVersionResource: replicaSets, Typed: &appsv1.ReplicaSet{}, Transform: keepRevision, Indexes: cache.Indexers{byOwner: revisionOwner},
	})
	o.revisions = controller.Scope(watch.Resource{
		GroupVersionResource: controllerRevisions, Typed: &appsv1.ControllerRevision{}, Transform: keepRevision, Indexes: cache.Indexers{byOwner: revisionOwner},
	})
	o.lease = newLease(c)
	return o
}

// Cluster returns the cluster that is observed.
func (o *Observer) Cluster() *cluster.Cluster { return o.cluster }

// Controllers implements rollout.Observer.
func (o *Observer) Controllers(ctx context.Context) (rollout.Lease, error) { return o.lease.read(ctx) }

// Follow adds the namespaces of those objects that have rollouts to the watched ones. They
// matter only where the agent may not watch the whole cluster. Follow starts no watch of a
// kind that is not in use.
func (o *Observer) Follow(objects []deploy.ObjectRef) error {
	for _, ref := range objects {
		w := o.workloads[ref.Kind]
		if w == nil || ref.Group != appsv1.GroupName {
			continue
		}
		if err := w.Cover(ref.Namespace); err != nil {
			return err
		}
		if ref.Kind == rollout.KindDeployment {
			if err := o.sets.Cover(ref.Namespace); err != nil {
				return err
			}
		}
	}
	return nil
}

// Watch returns the watch of a kind, started on first use. It returns an error of kind
// Invalid for a kind without rollouts.
func (o *Observer) Watch(kind string) (*watch.Scope, error) {
	w := o.workloads[kind]
	if w == nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s has no rollout to watch", kind)
	}
	err := w.Start()
	if err == nil {
		err = o.handleChanges(kind, w)
	}
	if err != nil {
		return nil, err
	}
	return w, w.Handle("rollout", func(_ context.Context, key types.NamespacedName) error {
		o.notify(subscription(kind, key.Namespace, key.Name))
		return nil
	})
}

// WatchReplicaSets returns the watch of ReplicaSets, started on first use.
func (o *Observer) WatchReplicaSets() (*watch.Scope, error) {
	if err := o.sets.Start(); err != nil {
		return nil, err
	}
	return o.sets, o.sets.Handle("rollout", func(_ context.Context, key types.NamespacedName) error {
		// A deleted ReplicaSet needs no notification: it changes the Deployment's status.
		if set, ok := o.sets.Get(key).(*Revision); ok {
			o.notify(set.subscription())
		}
		return nil
	})
}

// Subscribe implements rollout.Observer.
func (o *Observer) Subscribe(ref deploy.ObjectRef, wake func()) (cancel func(), err error) {
	key := subscription(ref.Kind, ref.Namespace, ref.Name)
	o.mu.Lock()
	if o.wake[key] == nil {
		o.wake[key] = map[*func()]bool{}
	}
	o.wake[key][&wake] = true
	o.mu.Unlock()
	cancel = func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.wake[key], &wake)
		if len(o.wake[key]) == 0 {
			delete(o.wake, key)
		}
	}
	_, err = o.Watch(ref.Kind)
	if err == nil && ref.Kind == rollout.KindDeployment {
		_, err = o.WatchReplicaSets()
	}
	if err == nil {
		err = o.Follow([]deploy.ObjectRef{ref})
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// notify calls the callbacks that are subscribed to a workload.
func (o *Observer) notify(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for wake := range o.wake[key] {
		(*wake)()
	}
}

// subscription returns the key of a workload in Observer.wake.
func subscription(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// Cached implements rollout.Observer.
func (o *Observer) Cached(ctx context.Context, rec deploy.Rollout) (rollout.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, FillTimeout)
	defer cancel()
	var s rollout.Snapshot
	w, err := o.Watch(rec.Workload.Kind)
	if err == nil {
		err = w.FilledIn(ctx, rec.Workload.Namespace)
	}
	if err != nil {
		return s, err
	}
	kept, ok := w.Get(types.NamespacedName{Namespace: rec.Workload.Namespace, Name: rec.Workload.Name}).(*Object)
	if !ok {
		return s, nil
	}
	s.Workload, s.Skew = &kept.Workload, o.cluster.Skew()
	if kept.Workload.Kind != rollout.KindDeployment {
		return s, nil
	}
	sets, err := o.WatchReplicaSets()
	if err == nil {
		err = sets.FilledIn(ctx, rec.Workload.Namespace)
	}
	if err != nil {
		return s, err
	}
	s.Revisions, err = ownedBy(sets, kept.Workload.UID)
	return s, err
}

// ownedBy returns the cached revisions of a workload.
func ownedBy(scope *watch.Scope, uid string) (found []rollout.Revision, err error) {
	owned, err := scope.ByIndex(byOwner, uid)
	if err != nil {
		return nil, fmt.Errorf("find the revisions of a workload: %w", err)
	}
	for _, obj := range owned {
		if kept, ok := obj.(*Revision); ok {
			found = append(found, kept.full())
		}
	}
	return found, nil
}

// Get returns a cached workload, nil if it is not cached.
func (o *Observer) Get(kind string, key types.NamespacedName) *Object {
	w, err := o.Watch(kind)
	if err != nil {
		return nil
	}
	kept, _ := w.Get(key).(*Object)
	return kept
}

// Evaluate evaluates a record on a cached snapshot and, if the verdict needs it, on a
// confirmed one. It returns the last verdict and its snapshot. If the record has ended,
// CompletedAt is the time of the first snapshot that showed the end. Pods are not read.
func (o *Observer) Evaluate(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot, policy rollout.Policy, now func() time.Time) (rollout.Verdict, rollout.Snapshot, error) {
	s.PodsRead = true
	cachedAt := now()
	cached := rollout.Evaluate(rec, s, policy, cachedAt)
	if !cached.NeedConfirm {
		return cached, s, nil
	}
	confirm := o.Confirm
	if o.selection != nil && rec.External() {
		confirm = o.ConfirmRevisions
	}
	s, err := confirm(ctx, rec)
	if err != nil {
		return cached, s, err
	}
	s.PodsRead = true
	v := rollout.Evaluate(rec, s, policy, now())
	if v.Mark {
		v.Record.CompletedAt = v.EndedAt(cached, cachedAt, now())
	}
	return v, s, nil
}

// Confirm implements rollout.Observer.
func (o *Observer) Confirm(ctx context.Context, rec deploy.Rollout) (rollout.Snapshot, error) {
	s := rollout.Snapshot{Confirmed: true}
	gvr, ok := workloadResources[rec.Workload.Kind]
	if !ok {
		return s, deploy.Errorf(deploy.Invalid, "%s has no rollout to watch", rec.Workload.Kind)
	}
	live, err := o.cluster.Dynamic().Resource(gvr).Namespace(rec.Workload.Namespace).Get(ctx, rec.Workload.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.NamespaceGone = o.namespaceGone(ctx, rec.Workload.Namespace)
		return s, nil
	}
	if err != nil {
		return s, o.cluster.Classify(fmt.Errorf("read %s: %w", rec.Workload, err))
	}
	if live.GetDeletionTimestamp() != nil {
		s.NamespaceGone = o.namespaceGone(ctx, rec.Workload.Namespace)
	}
	w, err := rollout.WorkloadFrom(live)
	if err != nil {
		return s, err
	}
	s.Workload, s.Skew = &w, o.cluster.Skew()
	if w.Kind != rollout.KindDeployment {
		return s, nil
	}
	// A list without a resource version is a quorum read.
	list, err := o.cluster.Dynamic().Resource(replicaSets).Namespace(rec.Workload.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.Selector})
	if err != nil {
		return s, o.cluster.Classify(fmt.Errorf("list the ReplicaSets of %s: %w", rec.Workload, err))
	}
	for i := range list.Items {
		r, err := rollout.RevisionFrom(&list.Items[i])
		if err != nil {
			return s, err
		}
		s.Revisions = append(s.Revisions, r)
	}
	return s, nil
}

// namespaceGone reports whether a namespace is deleted or terminating.
func (o *Observer) namespaceGone(ctx context.Context, name string) bool {
	ns, err := o.cluster.Typed().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil
}

// keepWorkload is the Transform of workloads: it reduces one to an Object.
func (o *Observer) keepWorkload(obj, before any) (any, error) {
	var w rollout.Workload
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		var older rollout.Workload
		if kept, ok := before.(*Object); ok {
			older = kept.Workload
		}
		w = rollout.FromDeploymentAfter(obj, older)
	case *appsv1.StatefulSet:
		w = rollout.FromStatefulSet(obj)
	case *appsv1.DaemonSet:
		w = rollout.FromDaemonSet(obj)
	default:
		return obj, nil
	}
	meta, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil // cannot happen: all of these types are objects
	}
	return &Object{
		ObjectMeta: watch.MetaOf(meta), Workload: w, Application: meta.GetLabels()[manifest.LabelApplication],
		Selected: o.selection.selects(meta.GetNamespace(), meta.GetLabels()),
	}, nil
}

// OnChange adds f to the callbacks for each new or changed workload with the application label
// and the application in it. Call it before the observer's controller runs.
func (o *Observer) OnChange(f func(application string, w rollout.Workload)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, f)
}

// handleChanges registers the callbacks of OnChange for the workloads of a kind, and adds the
// kind to the caches that Of and Stale read.
func (o *Observer) handleChanges(kind string, w *watch.Scope) error {
	o.mu.Lock()
	o.watched[kind] = w
	changed := o.changed
	o.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	return w.Handle("health", func(_ context.Context, key types.NamespacedName) error {
		// A deletion needs no call: the health of an application that is not healthy is
		// also evaluated periodically.
		if kept, ok := w.Get(key).(*Object); ok && kept.Application != "" {
			for _, f := range changed {
				f(kept.Application, kept.Workload)
			}
		}
		return nil
	})
}

// Each calls f, like OnChange, for each workload in the caches.
func (o *Observer) Each(f func(application string, w rollout.Workload)) {
	o.mu.Lock()
	watched := slices.Collect(maps.Values(o.watched))
	o.mu.Unlock()
	for _, w := range watched {
		for _, obj := range w.List() {
			if kept, ok := obj.(*Object); ok && kept.Application != "" {
				f(kept.Application, kept.Workload)
			}
		}
	}
}

// workloadApplication is the index function of byLabel.
func workloadApplication(obj any) ([]string, error) {
	if kept, ok := obj.(*Object); ok && kept.Application != "" {
		return []string{kept.Application}, nil
	}
	return nil, nil
}

// Of returns the cached workloads of an application, sorted by kind, namespace and name.
func (o *Observer) Of(application string) (found []*Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.watched {
		objects, err := w.ByIndex(byLabel, application)
		if err != nil {
			continue // there is no such index: unreachable
		}
		for _, obj := range objects {
			if kept, ok := obj.(*Object); ok {
				found = append(found, kept)
			}
		}
	}
	slices.SortFunc(found, func(a, b *Object) int {
		return cmp.Or(cmp.Compare(a.Workload.Kind, b.Workload.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// Stale reports whether the cache of any started workload kind does not follow the cluster
// at present.
func (o *Observer) Stale() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.watched {
		if _, err := w.State(); err != nil {
			return true
		}
	}
	return false
}

// StageObserver is the Observer of stages. While an agent with another store manages the
// cluster, Cached and Confirm return an error of kind Unavailable, so that no stage decides
// by the changes of that agent.
type StageObserver struct{ *Observer }

// Cached implements rollout.Observer.
func (o StageObserver) Cached(ctx context.Context, rec deploy.Rollout) (rollout.Snapshot, error) {
	if err := o.cluster.LeaseProblem(); err != nil {
		return rollout.Snapshot{}, err
	}
	return o.Observer.Cached(ctx, rec)
}

// Confirm implements rollout.Observer.
func (o StageObserver) Confirm(ctx context.Context, rec deploy.Rollout) (rollout.Snapshot, error) {
	if err := o.cluster.LeaseProblem(); err != nil {
		return rollout.Snapshot{}, err
	}
	return o.Observer.Confirm(ctx, rec)
}
