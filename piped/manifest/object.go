package manifest

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
)

// Object is one Kubernetes object as declared in Git. It has an apiVersion, a kind and
// a name. Its content consists of JSON values, with integers as int64.
type Object struct {
	*unstructured.Unstructured
	Origin Origin
	Hook   Hook // zero for regular objects
}

// Origin locates the source of an object.
type Origin struct {
	File string // slash-separated, as given to Parse
	Line int    // first line of the document; 0 when there is no file
}

// String returns "file:line", or the file alone without a line.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// Clone returns a deep copy of o.
func (o Object) Clone() Object {
	return Object{Unstructured: o.DeepCopy(), Origin: o.Origin, Hook: o.Hook}
}

// Clone returns deep copies of objs.
func Clone(objs []Object) []Object {
	out := make([]Object, len(objs))
	for i, o := range objs {
		out[i] = o.Clone()
	}
	return out
}

// Ref returns the reference of the object.
func Ref(u *unstructured.Unstructured) deploy.ObjectRef {
	gvk := schema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind())
	return deploy.ObjectRef{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// GroupKind returns the group and kind of a reference.
func GroupKind(r deploy.ObjectRef) schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// GVK returns the group, version and kind of a reference.
func GVK(r deploy.ObjectRef) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// ResourceKey returns PipeCD's key of the object, apiVersion:kind:namespace:name. The
// namespace is "default" for objects without one, including cluster-scoped objects.
func ResourceKey(u *unstructured.Unstructured) string {
	namespace := u.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return u.GetAPIVersion() + ":" + u.GetKind() + ":" + namespace + ":" + u.GetName()
}

// CheckUnique returns an error of kind deploy.Invalid with one line for each duplicate object,
// regardless of API versions. Each line names both origins. A hook with two phases counts once
// per phase.
func CheckUnique(objs []Object) error {
	seen := make(map[string][]Object, len(objs))
	var problems []error
	for _, o := range objs {
		ref := Ref(o.Unstructured)
		at := slices.IndexFunc(seen[ref.Key()], func(earlier Object) bool {
			return o.Hook.Phase == HookNone || earlier.Hook.Phase == HookNone || o.Hook.Phase == earlier.Hook.Phase
		})
		if at < 0 {
			seen[ref.Key()] = append(seen[ref.Key()], o)
			continue
		}
		problems = append(problems, deploy.Errorf(deploy.Invalid, "%s: %s is declared already at %s; an application declares each object once",
			o.Origin, ref, seen[ref.Key()][at].Origin))
	}
	return errors.Join(problems...)
}
