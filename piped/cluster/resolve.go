package cluster

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Resolve returns copies of objs with their namespaces. A namespaced object gets namespace
// (an application's input.namespace), or its own if namespace is "", or "default". A
// cluster-scoped object gets none. Kinds that a CustomResourceDefinition among objs defines
// need not be served.
//
// While the cluster does not answer, Resolve retries and logs that; log may be nil. An
// unknown kind, and two objects that resolve to the same one, are errors of kind Invalid.
func (c *Cluster) Resolve(ctx context.Context, objs []manifest.Object, namespace string, log deploy.StageLog) ([]manifest.Object, error) {
	waiting := c.LogOnce(log)
	out, err := placed(objs, namespace, func(obj manifest.Object) (ServedKind, error) { return c.KindOf(ctx, obj, waiting) })
	if err == nil {
		err = manifest.CheckUnique(out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Place is Resolve for objects that are only displayed: an unknown kind counts as
// namespaced, and two objects may resolve to one.
func (c *Cluster) Place(ctx context.Context, objs []manifest.Object, namespace string) ([]manifest.Object, error) {
	waiting := c.LogOnce(nil)
	return placed(objs, namespace, func(obj manifest.Object) (ServedKind, error) {
		resource, err := c.KindOf(ctx, obj, waiting)
		if deploy.IsKind(err, deploy.Invalid) {
			return ServedKind{Namespaced: true}, nil
		}
		return resource, err
	})
}

// placed returns copies of objs with their namespaces. It calls lookup for the kinds that no
// CustomResourceDefinition among objs defines.
func placed(objs []manifest.Object, namespace string, lookup func(manifest.Object) (ServedKind, error)) ([]manifest.Object, error) {
	inSet := KindsDefinedBy(raw(objs))
	out := make([]manifest.Object, len(objs))
	for i, obj := range objs {
		resource, ok := inSet[obj.GroupVersionKind()]
		if !ok {
			var err error
			if resource, err = lookup(obj); err != nil {
				return nil, err
			}
		}
		out[i] = InNamespace(obj.Clone(), resource.Namespaced, namespace)
	}
	return out, nil
}

// InNamespace sets the namespace of obj, as Resolve does, and returns obj.
func InNamespace(obj manifest.Object, namespaced bool, namespace string) manifest.Object {
	switch {
	case !namespaced:
		unstructured.RemoveNestedField(obj.Object, "metadata", "namespace")
	case namespace != "":
		obj.SetNamespace(namespace)
	case obj.GetNamespace() == "":
		obj.SetNamespace("default")
	}
	return obj
}

func raw(objs []manifest.Object) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		out[i] = obj.Unstructured
	}
	return out
}

// KindOf returns how the cluster serves obj's kind, with retries; see Retry for waiting. The
// error names the object. It is of kind Invalid, with a remedy, when the cluster does not
// serve the kind.
func (c *Cluster) KindOf(ctx context.Context, obj manifest.Object, waiting func(error)) (resource ServedKind, err error) {
	err = c.Retry(ctx, waiting, func(ctx context.Context) error {
		resource, err = c.discovery.lookup(ctx, obj.GroupVersionKind())
		return err
	})
	if errors.Is(err, ErrUnknownKind) {
		return ServedKind{}, deploy.Errorf(deploy.Invalid,
			"%s: %s has the kind %s of %s, which %s does not know; correct apiVersion and kind, install the CustomResourceDefinition, or add it to the application",
			obj.Origin, manifest.Ref(obj.Unstructured), obj.GetKind(), obj.GetAPIVersion(), c)
	}
	if err != nil {
		return ServedKind{}, deploy.Errorf(deploy.KindOf(c.Classify(err)), "find how %s is served: %w", manifest.Ref(obj.Unstructured), c.Classify(err))
	}
	return resource, nil
}

// segments reports whether all texts are valid segments of a URL path.
func segments(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return text == "" || len(content.IsPathSegmentName(text)) > 0 })
}

// CRDKind returns the kind CustomResourceDefinition.
func CRDKind() schema.GroupKind {
	return schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

// KindsDefinedBy returns the kinds that the CustomResourceDefinitions among objects define, in
// every served version. It skips definitions whose names are not valid in a URL path, because
// requests would address another resource.
func KindsDefinedBy(objects []*unstructured.Unstructured) map[schema.GroupVersionKind]ServedKind {
	kinds := map[schema.GroupVersionKind]ServedKind{}
	for _, u := range objects {
		if u.GroupVersionKind().GroupKind() != CRDKind() {
			continue
		}
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope")
		names, _, _ := unstructured.NestedMap(u.Object, "spec", "names")
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		kind, _ := names["kind"].(string)
		plural, _ := names["plural"].(string)
		for _, v := range versions {
			version, _ := v.(map[string]any)
			name, _ := version["name"].(string)
			if served, _ := version["served"].(bool); !served || !segments(group, name, plural) {
				continue
			}
			gv := schema.GroupVersion{Group: group, Version: name}
			kinds[gv.WithKind(kind)] = ServedKind{GroupVersionResource: gv.WithResource(plural), Namespaced: scope == "Namespaced"}
		}
	}
	return kinds
}
