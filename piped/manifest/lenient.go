package manifest

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// DiffLive returns how a live object differs from a declaration, ordered by path. It is
// the fallback when the API server does not answer a dry run. Only declared fields
// count, and only declared items of lists with merge keys. Missing and empty values are
// equal, as are a number and its text, and two notations of a quantity. Values of
// Secrets are included. It changes neither object.
func DiffLive(declaration, live *unstructured.Unstructured) []Change {
	d := differ{lenient: true}
	d.maps(Place{}, declared(declaration), live.Object)
	slices.SortFunc(d.changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return d.changes
}

// sameLenient reports whether the API server probably treats two values as equal: both
// are empty or zero, a number and its text, or notations of the same quantity.
func sameLenient(declared, live any) bool {
	if empty(declared) && empty(live) {
		return true
	}
	if !scalar(declared) || !scalar(live) {
		return false
	}
	d, l := fmt.Sprint(declared), fmt.Sprint(live)
	if d == l {
		_, declaredBool := declared.(bool)
		_, liveBool := live.(bool)
		return declaredBool == liveBool
	}
	a, errA := resource.ParseQuantity(d)
	b, errB := resource.ParseQuantity(l)
	return errA == nil && errB == nil && a.Cmp(b) == 0
}

// empty reports whether v is missing, or the zero value of its type.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func scalar(v any) bool {
	switch v.(type) {
	case string, bool, int64, int, float64:
		return true
	}
	return false
}

// Limited returns a copy of a live object with only the fields that DiffLive compares
// with a declaration.
func Limited(declaration, live *unstructured.Unstructured) *unstructured.Unstructured {
	object, _ := limited(Place{}, declared(declaration), live.Object).(map[string]any)
	return (&unstructured.Unstructured{Object: object}).DeepCopy()
}

// limited returns the part of live that a lenient differ compares with declared; see
// differ.maps and differ.lists.
func limited(at Place, declared, live any) any {
	switch d := declared.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return live
		}
		out := map[string]any{}
		for key, value := range d {
			if v, ok := l[key]; ok {
				out[key] = limited(at.Field(key), value, v)
			}
		}
		return out
	case []any:
		l, ok := live.([]any)
		if !ok {
			return live
		}
		keys := keysOf(at.key, slices.Concat(d, l))
		wanted, names := byKey(keys, d)
		there, _ := byKey(keys, l)
		if keys == nil || wanted == nil || there == nil {
			return live
		}
		out := []any{}
		for _, name := range names {
			if item, ok := there[name]; ok {
				out = append(out, limited(at.Item(name), wanted[name], item))
			}
		}
		return out
	}
	return live
}
