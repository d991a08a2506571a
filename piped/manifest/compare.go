package manifest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Difference is an object that differs between two states of an application. Before is
// nil for an added object, After for a removed one.
type Difference struct {
	Before, After *Object
}

// Compare pairs the objects of two states and returns the differing pairs by kind,
// namespace and name. Objects differ if Diff finds a change, or only in the API
// version. An empty namespace equals "default".
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

// comparisonKey identifies the pair of an object and determines the order of pairs. A hook has
// one key per phase.
func comparisonKey(o Object) string {
	ref := Ref(o.Unstructured)
	const sep = "\x00"
	return ref.Kind + sep + cmp.Or(ref.Namespace, "default") + sep + ref.Name + sep + ref.Group + sep + string(o.Hook.Phase)
}

// Object returns the object after the change, or before its removal.
func (d Difference) Object() Object {
	if d.After != nil {
		return *d.After
	}
	return *d.Before
}

// Ref returns the reference of the object.
func (d Difference) Ref() deploy.ObjectRef { return Ref(d.Object().Unstructured) }
