package apply

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// target is the state of one object of the set during an apply or a comparison.
type target struct {
	source    manifest.Object // the object in Git
	ref       deploy.ObjectRef
	desired   *unstructured.Unstructured // the object to send
	complete  *unstructured.Unstructured // desired before ignoreFields; nil if not needed
	digest    string                     // applyRun.digestOf; for InventoryItem.DesiredDigest
	config    podConfig                  // zero if the object runs no pods
	same      bool                       // equal to the last applied object but for its config
	restarts  bool                       // a change of its configuration may restart its pods
	stalePods []string                   // UIDs of pods that have read other content than Git's
	resource  cluster.ServedKind
	crdInSet  bool // the set contains the CustomResourceDefinition of its kind
	whole     bool // live is the whole object, otherwise only its metadata

	recorded *deploy.InventoryItem // of the inventory; nil if it is not there
	live     metav1.Object         // nil if the object does not exist
	changed  bool                  // the object is sent
	expired  bool                  // a finished Job that Kubernetes has deleted (leaveExpired)
	untried  string                // why the object is not dry-run; "" if it is
	// recreated is why the live object is deleted first; "" if it is not.
	recreated  string
	planned    *unstructured.Unstructured // the answer to the dry run; nil if unknown
	collisions []collision                // that the apply removes, or that make it impossible
	result     metav1.Object              // the answer to the apply; whole only for workloads
	item       deploy.InventoryItem       // after the apply
	done       effect                     // "" until the object is applied or unchanged

	writtenAt time.Time // of the answer, by the API server's clock; zero if nothing was sent

	owned, mark, values string // OwnedHash, Mark and ValuesDigest of the answer
}

// effect is the effect of an apply on an object, as logged.
type effect string

const (
	created    effect = "created"
	configured effect = "configured"
	recreated  effect = "recreated"
	unchanged  effect = "unchanged"
)

// liveObject returns the live object, nil if it does not exist or only its metadata was read.
func (t *target) liveObject() *unstructured.Unstructured {
	u, _ := t.live.(*unstructured.Unstructured)
	return u
}

func (t *target) isWorkload() bool { return IsWorkload(manifest.GroupKind(t.ref)) }

// IsWorkload reports whether objects of the kind roll out: Deployments, StatefulSets and
// DaemonSets.
func IsWorkload(kind schema.GroupKind) bool {
	return kind.Group == "apps" && (kind.Kind == "Deployment" || kind.Kind == "StatefulSet" || kind.Kind == "DaemonSet")
}

// runsPods reports whether objects of the kind run pods and are not workloads.
func runsPods(kind schema.GroupKind) bool {
	switch kind.String() {
	case "Pod", "ReplicationController", "ReplicaSet.apps", "Job.batch", "CronJob.batch":
		return true
	}
	return false
}

// selectChanged decides which objects are sent: all except those that are unchanged in Git and
// whose UID, owned fields and values are those recorded after the last apply. A workload with
// only another configuration is sent if that restarts its pods.
func (r *applyRun) selectChanged(context.Context) error {
	for _, t := range r.targets {
		if r.req.HookRun != "" && RunsToEnd(t.desired) {
			if err := r.selectHook(t); err != nil {
				return err
			}
			continue
		}
		if r.leaveExpired(t) {
			continue
		}
		t.changed = t.recorded == nil || t.live == nil || t.live.GetDeletionTimestamp() != nil ||
			!t.same || t.restarts || r.restartsAgain(t) || t.recorded.UID != string(t.live.GetUID()) ||
			t.recorded.OwnedHash != OwnedHash(t.live.GetManagedFields()) || t.rewritten()
		if !t.changed {
			t.item, t.done = *t.recorded, unchanged
			switch {
			case !t.isWorkload():
				t.item.ConfigHash = t.config.recorded()
			case t.recorded.ConfigHash != "":
				t.item.DesiredDigest, t.item.ConfigHash = t.digest, t.config.recorded()
			}
		}
	}
	return nil
}

// restartsAgain reports whether an interrupted run decided to restart a workload and did not
// write it.
func (r *applyRun) restartsAgain(t *target) bool {
	decided, ok := r.req.Restarts[t.ref.Key()]
	live := t.liveObject()
	return ok && t.isWorkload() && live != nil && configHash(live) == decided.Was
}

// rewritten reports whether the live object may have other values than the applied ones,
// although the agent still owns the fields. Changes by admission webhooks, and by clients that
// use the agent's field manager, do not change the ownership.
func (t *target) rewritten() bool {
	if t.recorded.Mark == "" || t.recorded.Mark == Mark(t.live) {
		return false
	}
	live := t.liveObject()
	return live == nil || ValuesDigest(live) != t.recorded.ValuesDigest
}

// selectHook decides whether a hook is created, recreated or left unchanged (Request.HookRun).
func (r *applyRun) selectHook(t *target) error {
	switch {
	case t.live == nil && slices.Contains(r.req.Created, t.ref):
		return deploy.Errorf(deploy.Invalid,
			"%s (%s) was begun by this deployment and is gone before its end was seen; it is not run twice: see what it did, and sync again", t.ref, t.source.Origin)
	case t.live == nil:
	case t.live.GetAnnotations()[manifest.AnnotationHookRun] == r.req.HookRun:
		t.item = deploy.InventoryItem{ApplicationID: r.req.ApplicationID, Cluster: r.cluster.Name(), Object: t.ref, UID: string(t.live.GetUID())}
		t.done = unchanged
		return nil
	default:
		t.recreated = "it ran before"
	}
	t.changed = true
	return nil
}

// changed returns the targets that are sent.
func (r *applyRun) changed() []*target {
	var out []*target
	for _, t := range r.targets {
		if t.changed {
			out = append(out, t)
		}
	}
	return out
}
