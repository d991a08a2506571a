package apply

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// replaceEnabled is the value of AnnotationForceSyncByReplace that permits to delete an object
// and create it anew.
const replaceEnabled = "enabled"

// mayRecreate reports whether an object may be deleted and created anew to change an immutable
// field. That is so for some kinds without state of their own, and for other replaceable kinds
// if the object's annotation permits it.
func mayRecreate(u *unstructured.Unstructured) bool {
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Kind: "Pod"},
		schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"},
		schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:
		return true
	}
	return permitsReplace(u) && replaceable(u.GroupVersionKind().GroupKind())
}

// permitsReplace reports whether the object's annotation permits to recreate it.
func permitsReplace(u *unstructured.Unstructured) bool {
	return u.GetAnnotations()[manifest.AnnotationForceSyncByReplace] == replaceEnabled
}

// replaceable reports whether objects of the kind may be recreated if they permit it. It is
// false for kinds whose deletion deletes data or other objects.
func replaceable(kind schema.GroupKind) bool {
	never := []schema.GroupKind{cluster.CRDKind(), {Kind: "Namespace"}, {Kind: "PersistentVolume"}, {Kind: "PersistentVolumeClaim"}}
	return !slices.Contains(never, kind)
}

// planRecreation decides, by the error of its dry run, whether a live object is recreated, and
// sets t.recreated. It returns true only if the object may be recreated and all causes of the
// error are immutable fields.
func planRecreation(t *target, err error) bool {
	if t.live == nil || !apierrors.IsInvalid(err) || !mayRecreate(t.desired) {
		return false
	}
	fields := immutableFields(err)
	if len(fields) == 0 || len(fields) != causeCount(err) {
		return false
	}
	t.recreated = fields[0] + " cannot be changed"
	return true
}

// dryRunCreate dry-runs the creation of an object that is to be recreated, under a generated
// name. It skips Services, because the live one occupies the requested addresses and ports. It
// ignores refusals that the other name may cause, and then returns nil.
func (r *applyRun) dryRunCreate(ctx context.Context, t *target) (planned *unstructured.Unstructured, err error) {
	if t.ref.Group == "" && t.ref.Kind == "Service" {
		return nil, nil
	}
	trial := t.desired.DeepCopy()
	trial.SetName("")
	trial.SetGenerateName(t.ref.Name + "-")
	err = r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
		planned, err = r.cluster.ResourceClient(t.resource, t.ref.Namespace).Create(ctx, trial,
			metav1.CreateOptions{FieldManager: cluster.FieldManager, DryRun: []string{metav1.DryRunAll}})
		return err
	})
	if apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) && !cluster.IsSchemaError(err) {
		return nil, nil
	}
	return planned, err
}

// remove deletes the live object of a target that is recreated, and waits until it is gone. An
// object of the same name with another UID is an error of kind Conflict.
func (r *applyRun) remove(ctx context.Context, t *target) error {
	uid, background := t.live.GetUID(), metav1.DeletePropagationBackground
	err := r.cluster.RetryWrite(ctx, r.wait, func(ctx context.Context) error {
		err := r.cluster.MetadataClient(t.resource, t.ref.Namespace).Delete(ctx, t.ref.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
		})
		if apierrors.IsConflict(err) {
			return deploy.Errorf(deploy.Conflict, "another object has taken its name; sync again")
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		t.live = nil
		return nil
	case err != nil:
		return r.cluster.explain(t.source, "delete", err)
	}
	r.req.Log.Infof("deleted %s to create it anew", t.ref)
	return r.awaitEnd(ctx, t)
}

// immutableFields returns the fields that, according to the API server's error, are immutable.
func immutableFields(err error) []string {
	var fields []string
	for _, cause := range causesOf(err) {
		if saysImmutable(cause.Message) {
			fields = append(fields, cause.Field)
		}
	}
	return fields
}

func causeCount(err error) int { return len(causesOf(err)) }

// causesOf returns the causes in the API server's error, one per invalid field; nil without
// any.
func causesOf(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}
