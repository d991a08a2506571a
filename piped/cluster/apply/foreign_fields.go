package apply

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/c785c783/piped/piped/manifest"
)

// sameContent reports whether the planned state of an object is equal to the live one, apart from
// status and metadata. Of metadata it compares only name, namespace, finalizers and the labels
// other than the application's, and those of another tool that the planned state has no more.
func sameContent(live, planned *unstructured.Unstructured) bool {
	remaining, stays := live.GetLabels(), planned.GetLabels()
	for key := range remaining {
		if _, ok := stays[key]; !ok && manifest.IsToolLabel(live, key) {
			delete(remaining, key)
		}
	}
	was := contentOnly(live)
	setLabels(was, remaining)
	return reflect.DeepEqual(was, contentOnly(planned))
}

// setLabels sets the labels of what contentOnly returns, except the application's.
func setLabels(content map[string]any, labels map[string]string) {
	kept, _ := content["metadata"].(map[string]any)
	delete(labels, manifest.LabelApplication)
	delete(kept, "labels")
	if len(labels) > 0 {
		kept["labels"] = labels
	}
}

// contentOnly returns a copy of an object with only the fields that sameContent compares.
func contentOnly(u *unstructured.Unstructured) map[string]any {
	out := u.DeepCopy()
	delete(out.Object, "status")
	labels := out.GetLabels()
	out.Object["metadata"] = map[string]any{"name": out.GetName(), "namespace": out.GetNamespace(), "finalizers": out.GetFinalizers()}
	setLabels(out.Object, labels)
	return out.Object
}

// withoutInherited returns planned, the result of an apply over live, without the fields that
// only inherited entries own: the first apply removes them (adopt). Some reports whether
// there are such fields; reduced is nil otherwise.
func withoutInherited(live, planned *unstructured.Unstructured) (reduced *unstructured.Unstructured, some bool, err error) {
	dropped, kept := fieldpath.NewSet(), fieldpath.NewSet()
	collect := func(into **fieldpath.Set, e metav1.ManagedFieldsEntry) error {
		set, err := setOf(e)
		if err != nil {
			return err
		}
		*into = (*into).Union(set)
		return nil
	}
	for _, e := range live.GetManagedFields() {
		if inherited(e) && e.APIVersion == planned.GetAPIVersion() {
			if err := collect(&dropped, e); err != nil {
				return nil, false, err
			}
		}
	}
	for _, e := range planned.GetManagedFields() {
		if !inherited(e) {
			if err := collect(&kept, e); err != nil {
				return nil, false, err
			}
		}
	}
	dropped = dropped.Difference(kept)
	if dropped.Empty() {
		return nil, false, nil
	}
	reduced = planned.DeepCopy()
	dropped.Iterate(func(p fieldpath.Path) {
		if !holdsBelow(kept, p) {
			removePath(reduced.Object, p)
		}
	})
	reduced.SetManagedFields(nil)
	reduced.SetResourceVersion(live.GetResourceVersion())
	return reduced, true, nil
}

// holdsBelow reports whether a set contains fields below a path.
func holdsBelow(set *fieldpath.Set, path fieldpath.Path) bool {
	for _, e := range path {
		set = set.WithPrefix(e)
	}
	return !set.Empty()
}

// removePath removes the value at a path from v, a JSON value, and returns v. It changes v,
// unless the path does not exist.
func removePath(v any, path fieldpath.Path) any {
	if len(path) == 0 {
		return v
	}
	head, rest := path[0], path[1:]
	switch v := v.(type) {
	case map[string]any:
		if head.FieldName == nil {
			return v
		}
		child, ok := v[*head.FieldName]
		switch {
		case ok && len(rest) == 0:
			delete(v, *head.FieldName)
		case ok:
			v[*head.FieldName] = removePath(child, rest)
		}
		return v
	case []any:
		i := slices.IndexFunc(v, func(item any) bool { return selects(head, item) })
		switch {
		case i < 0:
		case len(rest) == 0:
			return slices.Delete(v, i, i+1)
		default:
			v[i] = removePath(v[i], rest)
		}
		return v
	}
	return v
}

// selects reports whether a path element addresses this item of a list by key or value.
func selects(e fieldpath.PathElement, item any) bool {
	switch {
	case e.Value != nil:
		return value.Equals(*e.Value, value.NewValueInterface(item))
	case e.Key != nil:
		fields, ok := item.(map[string]any)
		for _, f := range *e.Key {
			ok = ok && value.Equals(f.Value, value.NewValueInterface(fields[f.Name]))
		}
		return ok
	}
	return false
}
