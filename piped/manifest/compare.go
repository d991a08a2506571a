package manifest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Difference is one object of which two states of an application say something
// else. Before is nil for one that is added, After for one that is removed.
type Difference struct {
	Before, After *Object
}

// Compare pairs the objects of two states and returns the pairs that differ, by
// kind, namespace and name. What Diff finds no change in does not differ; an object
// that only changes its API version does. No namespace is the same as "default".
func Compare(before, after []Object) []Difference {
	byKey := map[string]*Difference{}
	at := func(o Object) *Difference {
		key := comparisonKey(o)
		if byKey[key] == nil {
			byKey[key] = &Difference{}
		}
		return byKey[key]
	}
	for i := range before {
		at(before[i]).Before = &before[i]
	}
	for i := range after {
		at(after[i]).After = &after[i]
	}
	var out []Difference
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		d := *byKey[key]
		if d.Before == nil || d.After == nil || len(Diff(d.Before.Unstructured, d.After.Unstructured)) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// comparisonKey is what a pair has in common, and begins with what pairs are ordered
// by. A hook stands once for each phase.
func comparisonKey(o Object) string {
	ref := Ref(o.Unstructured)
	const sep = "\x00"
	return ref.Kind + sep + cmp.Or(ref.Namespace, "default") + sep + ref.Name + sep + ref.Group + sep + string(o.Hook.Phase)
}

// Object returns the object as it is after, or was before it is removed.
func (d Difference) Object() Object {
	if d.After != nil {
		return *d.After
	}
	return *d.Before
}

// Ref names the object.
func (d Difference) Ref() deploy.ObjectRef { return Ref(d.Object().Unstructured) }
