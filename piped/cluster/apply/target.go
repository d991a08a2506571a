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

// target is the state of one object of the set.
type target struct {
	source    manifest.Object
	ref       deploy.ObjectRef
	desired   *unstructured.Unstructured // what is sent
	complete  *unstructured.Unstructured // desired with the fields that are left to others; nil if it is the same
	digest    string                     // of desired
	config    podConfig                  // of what runs pods
	same      bool                       // it is the object that was applied last; of a workload, whatever its configuration holds
	restarts  bool                       // its configuration may be other than it was applied with last, in what its pods are restarted for
	stalePods []string                   // UIDs of pods that read other content than Git's
	resource  cluster.ServedKind
	crdInSet  bool // its definition is part of the set
	whole     bool // it is read whole: it rolls out, has replicas, or leaves fields to others

	recorded *deploy.InventoryItem // what the inventory says of it
	live     metav1.Object         // nil when absent; whole for workloads, else metadata
	changed  bool
	expired  bool   // it is not there because it has done its work
	untried  string // why it is not dry-run; "" when it is
	// recreated is why the live object is deleted first; "" when it is not.
	recreated  string
	planned    *unstructured.Unstructured
	collisions []collision   // live items that are removed for it, or that keep it from being applied
	result     metav1.Object // the API server's answer: a workload whole, of others what identifies it
	item       deploy.InventoryItem
	done       effect

	writtenAt time.Time // by the API server's clock, as the answer says; zero when it was not sent

	owned, mark, values string // OwnedHash, Mark and ValuesDigest of the answer
}

// effect is the effect of an apply on an object.
type effect string

const (
	created    effect = "created"
	configured effect = "configured"
	recreated  effect = "recreated"
	unchanged  effect = "unchanged"
)

// liveObject returns the live object if its content was read.
func (t *target) liveObject() *unstructured.Unstructured {
	u, _ := t.live.(*unstructured.Unstructured)
	return u
}

func (t *target) isWorkload() bool { return IsWorkload(manifest.GroupKind(t.ref)) }

// IsWorkload reports whether objects of the kind roll out.
func IsWorkload(kind schema.GroupKind) bool {
	return kind.Group == "apps" && (kind.Kind == "Deployment" || kind.Kind == "StatefulSet" || kind.Kind == "DaemonSet")
}

// runsPods reports whether objects of the kind run pods that no rollout replaces.
func runsPods(kind schema.GroupKind) bool {
	switch kind.String() {
	case "Pod", "ReplicationController", "ReplicaSet.apps", "Job.batch", "CronJob.batch":
		return true
	}
	return false
}

// selectChanged decides which objects are sent: all but those whose desired digest, UID and
// owned fields are as recorded after the last apply, and whose values are unchanged since.
// A change of its configuration alone sends a workload only if that restarts its pods.
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

// restartsAgain reports whether an interrupted run of the stage decided to restart a
// workload without doing so.
func (r *applyRun) restartsAgain(t *target) bool {
	decided, ok := r.req.Restarts[t.ref.Key()]
	live := t.liveObject()
	return ok && t.isWorkload() && live != nil && configHash(live) == decided.Was
}

// rewritten reports whether the live object may hold other values than applied although the
// agent still owns its fields. Changes by admission webhooks, and by clients that use the
// agent's field manager, do not change the ownership.
func (t *target) rewritten() bool {
	if t.recorded.Mark == "" || t.recorded.Mark == Mark(t.live) {
		return false
	}
	live := t.liveObject()
	return live == nil || ValuesDigest(live) != t.recorded.ValuesDigest
}

// selectHook decides whether a hook runs.
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

func (r *applyRun) changed() []*target {
	var out []*target
	for _, t := range r.targets {
		if t.changed {
			out = append(out, t)
		}
	}
	return out
}
