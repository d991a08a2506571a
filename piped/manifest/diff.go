package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Change is one difference between two versions of an object.
type Change struct {
	// Path locates the change, such as spec.template.spec.containers[name=web].image. List
	// items are addressed by their merge key, else by index (args[1]). Keys that are not plain
	// words are quoted (metadata.annotations["a.b/c"]).
	Path string
	// Before and After are the declared values, nil for none. Values of Secrets are
	// masked.
	Before, After any
}

// masked replaces the values of Secrets.
const masked = "(secret)"

// Diff returns the differences between two declarations, ordered by path; nil when they
// are equal. It changes neither object.
//
// It compares numbers and quantities by value, treats null as missing and a Secret's
// stringData as data, and ignores what Digest ignores. List items are paired by the
// merge keys of the built-in types, regardless of their order. Items of other lists are
// paired by a name, key or id that all items have; there, and for initContainers, the
// order counts. All other items are paired by index.
func Diff(before, after *unstructured.Unstructured) []Change {
	d := differ{secret: isSecret(before) || isSecret(after)}
	d.maps(Place{}, declared(before), declared(after))
	slices.SortFunc(d.changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return d.changes
}

// differ collects the differences between two objects.
type differ struct {
	secret bool
	// lenient compares a declaration with a live object: only declared fields count,
	// and equivalent notations are equal.
	lenient bool
	changes []Change
}

// change records a difference; nil stands for a missing value. Values of Secrets are masked.
func (d *differ) change(at Place, before, after any) {
	if d.secret && !showable(at.Path) {
		before, after = mask(before), mask(after)
	}
	d.changes = append(d.changes, Change{Path: at.Path, Before: before, After: after})
}

// showable reports whether the value at a path of a Secret may be displayed. Its data may not,
// nor its annotations, which may contain copies of the data.
func showable(path string) bool {
	switch path {
	case "apiVersion", "kind", "type", "immutable":
		return true
	}
	return strings.HasPrefix(path, "metadata.") && !strings.HasPrefix(path, "metadata.annotations")
}

func mask(v any) any {
	if v == nil {
		return nil
	}
	return masked
}

// values compares two values at one place.
func (d *differ) values(at Place, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			d.maps(at, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok {
			d.lists(at, b, a)
			return
		}
	}
	if !same(at, before, after) && !(d.lenient && sameLenient(before, after)) {
		d.change(at, before, after)
	}
}

// maps compares two maps at one place, key by key. A lenient differ ignores keys that
// only after has.
func (d *differ) maps(at Place, before, after map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		d.values(at.Field(key), before[key], after[key])
	}
	if d.lenient {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, both := before[key]; !both {
			d.values(at.Field(key), nil, after[key])
		}
	}
}

// lists compares two lists at one place. It pairs their items by their keys if these are
// unique, else by index. For paired items a lenient differ ignores the order, and items that
// only after has.
func (d *differ) lists(at Place, before, after []any) {
	keys := keysOf(at.key, slices.Concat(before, after))
	old, oldNames := byKey(keys, before)
	new, newNames := byKey(keys, after)
	if keys == nil || old == nil || new == nil {
		d.byIndex(at, before, after)
		return
	}
	for _, name := range oldNames {
		d.values(at.Item(name), old[name], new[name])
	}
	if d.lenient {
		return
	}
	for _, name := range newNames {
		if _, both := old[name]; !both {
			d.values(at.Item(name), nil, new[name])
		}
	}
	shared := func(other map[string]any) func(string) bool {
		return func(name string) bool { _, ok := other[name]; return !ok }
	}
	oldNames, newNames = slices.DeleteFunc(oldNames, shared(new)), slices.DeleteFunc(newNames, shared(old))
	if orderCounts(at.key) && !slices.Equal(oldNames, newNames) {
		d.change(at, "in the order "+strings.Join(oldNames, ", "), "in the order "+strings.Join(newNames, ", "))
	}
}

// byIndex compares two lists item by item; a missing item is nil.
func (d *differ) byIndex(at Place, before, after []any) {
	for i := range max(len(before), len(after)) {
		var b, a any
		if i < len(before) {
			b = before[i]
		}
		if i < len(after) {
			a = after[i]
		}
		d.values(at.Item(strconv.Itoa(i)), b, a)
	}
}

// same reports whether two values, not both maps or both lists, are equivalent.
func same(at Place, before, after any) bool {
	if reflect.DeepEqual(before, after) {
		return true
	}
	if before == nil || after == nil {
		return false
	}
	if quantity(at) {
		b, errB := resource.ParseQuantity(fmt.Sprint(before))
		a, errA := resource.ParseQuantity(fmt.Sprint(after))
		if errB == nil && errA == nil {
			return a.Cmp(b) == 0
		}
	}
	return equalNumbers(before, after)
}

// equalNumbers reports whether one of a and b is an int64, the other a float64, and both have
// the same value, such as 1 and 1.0. The caller compares values of the same type itself.
func equalNumbers(a, b any) bool {
	if x, ok := a.(float64); ok {
		y, ok := b.(int64)
		return ok && x == float64(y)
	}
	if _, ok := b.(float64); ok {
		return equalNumbers(b, a)
	}
	return false
}

// quantity reports whether the value at a place is a Kubernetes quantity.
func quantity(at Place) bool {
	switch at.parent {
	case "requests", "limits", "capacity", "hard", "overhead", "podFixed":
		return true
	case "max", "min", "default", "defaultRequest", "maxLimitRequestRatio": // of a LimitRange
		return strings.HasPrefix(at.Path, "spec.limits[")
	case "target": // of a HorizontalPodAutoscaler
		return at.key == "value" || at.key == "averageValue"
	}
	switch at.key {
	case "sizeLimit", "divisor":
		return true
	}
	return false
}

func isSecret(u *unstructured.Unstructured) bool {
	return u.GetKind() == "Secret" && u.GetAPIVersion() == "v1"
}
