package workloads

import (
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
)

// Revision is a cached ReplicaSet or ControllerRevision. A large cluster has tens of thousands,
// nearly all of them without pods: it holds what decides a rollout, and shares what those of a
// workload have in common.
type Revision struct {
	name, version string
	uid           types.UID
	owner         unique.Handle[owner]
	template      rollout.Template

	number, created                int64 // created in Unix seconds
	generation, observedGeneration int64

	desired, total, ready, available int32
	deleting                         bool
	failure                          *rollout.Condition // nil for none
}

// owner is the controller of a revision; the zero value if it has none.
type owner struct {
	namespace, kind, name, uid string
}

// keepRevision is the Transform of ReplicaSets and ControllerRevisions: it reduces one to a
// Revision.
func keepRevision(obj, before any) (any, error) {
	var r rollout.Revision
	switch obj := obj.(type) {
	case *appsv1.ReplicaSet:
		var older rollout.Revision
		if known, ok := before.(*Revision); ok {
			older = known.full()
		}
		r = rollout.FromReplicaSetAfter(obj, older)
	case *appsv1.ControllerRevision:
		r = rollout.FromControllerRevision(obj)
	default:
		return obj, nil
	}
	meta, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil // cannot happen: both types are objects
	}
	of := owner{namespace: meta.GetNamespace()}
	if o := metav1.GetControllerOfNoCopy(meta); o != nil {
		of.kind, of.name, of.uid = o.Kind, o.Name, string(o.UID)
	}
	kept := &Revision{
		name: meta.GetName(), version: meta.GetResourceVersion(), uid: meta.GetUID(), owner: unique.Make(of), template: r.Template,
		number: r.Number, created: r.Created.Unix(), generation: r.Generation, observedGeneration: r.ObservedGeneration,
		desired: r.Desired, total: r.Total, ready: r.Ready, available: r.Available, deleting: r.Deleting,
	}
	if r.Failure != (rollout.Condition{}) {
		kept.failure = &r.Failure
	}
	return kept, nil
}

// full returns what package rollout needs of a revision.
func (r *Revision) full() rollout.Revision {
	full := rollout.Revision{
		UID: string(r.uid), Name: r.name, OwnerUID: r.OwnerUID(), Number: r.number, Created: time.Unix(r.created, 0), Template: r.template,
		Generation: r.generation, ObservedGeneration: r.observedGeneration, Deleting: r.deleting,
		Desired: r.desired, Total: r.total, Ready: r.ready, Available: r.available,
	}
	if r.failure != nil {
		full.Failure = *r.failure
	}
	return full
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *Revision) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.owner.Value().namespace, Name: r.name, UID: r.uid, ResourceVersion: r.version}
}

// Number returns the number of the revision, 0 if it has none.
func (r *Revision) Number() int64 { return r.number }

// Owner returns kind and name of its controller, "" if it has none.
func (r *Revision) Owner() (kind, name string) { return r.owner.Value().kind, r.owner.Value().name }

// OwnerUID returns the UID of its controller, "" if it has none.
func (r *Revision) OwnerUID() string { return r.owner.Value().uid }

// subscription returns the subscription key of its controller.
func (r *Revision) subscription() string {
	o := r.owner.Value()
	return subscription(o.kind, o.namespace, o.name)
}

// revisionOwner is the index function of byOwner.
func revisionOwner(obj any) ([]string, error) {
	if kept, ok := obj.(*Revision); ok && kept.OwnerUID() != "" {
		return []string{kept.OwnerUID()}, nil
	}
	return nil, nil
}
