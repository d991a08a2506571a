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

// Change is one difference between two objects that stand for the same thing.
type Change struct {
	// Path is where it is, such as spec.template.spec.containers[name=web].image.
	// Items of a list are named by their merge key, else by index (args[1]); keys
	// that are no plain words are quoted (metadata.annotations["a.b/c"]).
	Path string
	// Before and After are what is declared there, nil when nothing is. Of what a
	// Secret may hold they only say that there is something.
	Before, After any
}

// masked stands for what a Secret holds.
const masked = "(secret)"

// Diff returns what differs between two declarations, ordered by path; nil when
// they say the same. Neither object is changed.
//
// Numbers and quantities are compared by value, null is the same as nothing, a
// Secret's stringData counts as data, and what Digest leaves out is left out.
// Items of a list are paired by the merge keys of the built-in types, whatever
// their order; of other lists by a name, key or id that all items have, and there
// their order counts, as it does for initContainers. What is left is paired by
// index.
func Diff(before, after *unstructured.Unstructured) []Change {
	d := differ{secret: isSecret(before) || isSecret(after)}
	d.maps(Place{}, declared(before), declared(after))
	slices.SortFunc(d.changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return d.changes
}

type differ struct {
	secret bool
	// loose compares what is declared with what is live: only what is declared counts,
	// and what is written in another way is the same.
	loose   bool
	changes []Change
}

func (d *differ) change(at Place, before, after any) {
	if d.secret && !harmless(at.Path) {
		before, after = mask(before), mask(after)
	}
	d.changes = append(d.changes, Change{Path: at.Path, Before: before, After: after})
}

// harmless reports whether what stands at a path of a Secret may be shown: not
// its data, and not annotations, where copies of the data are found.
func harmless(path string) bool {
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

// values compares two values of one place.
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
	if !same(at, before, after) && !(d.loose && sameLoosely(before, after)) {
		d.change(at, before, after)
	}
}

func (d *differ) maps(at Place, before, after map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		d.values(at.Field(key), before[key], after[key])
	}
	if d.loose {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, both := before[key]; !both {
			d.values(at.Field(key), nil, after[key])
		}
	}
}

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
	if d.loose {
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

// same reports whether two values, not both maps or both lists, say the same.
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

// equalNumbers compares an integer with a fraction such as 1.0; two integers that
// are not the same are no equal numbers, however large they are.
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

// quantity reports whether what stands at a place is a Kubernetes quantity.
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
