package apply

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/c785c783/piped/piped/manifest"
)

// difference is the difference of a live object from Git.
type difference struct {
	changes   []manifest.Change          // sorted by path
	git, live *unstructured.Unstructured // the compared fields
	note      string                     // ObjectDrift.Note
}

// confirmed returns the difference between planned, the answer to a dry run of an apply, and
// the live object, in the fields that the agent would own.
func (r *comparison) confirmed(t *target, planned, live *unstructured.Unstructured) (difference, error) {
	own, err := ownedFields(planned)
	if err != nil {
		return difference{}, err
	}
	if own.Empty() { // the extension server of the API group does not track ownership
		return r.unowned(t, live), nil
	}
	git := planned.DeepCopy()
	r.ignore(git, live)
	var d ownedDiff
	d.walk(manifest.Place{}, own, git.Object, live.Object)
	slices.SortFunc(d.changes, func(a, b manifest.Change) int { return cmp.Compare(a.Path, b.Path) })
	return difference{changes: d.changes, git: limited(own, git), live: limited(own, live)}, nil
}

// unconfirmed returns the difference between the object in Git and the live one when the dry
// run of an apply was refused.
func (r *comparison) unconfirmed(t *target, live *unstructured.Unstructured, refusal error) difference {
	d := r.unowned(t, live)
	d.note = "the API server refuses to try an apply, so this is what Git and the live object themselves say: " +
		r.cluster.explain(t.source, "apply", refusal).Error()
	return d
}

// unowned returns the difference between the object in Git and the live one, without the API
// server's defaulting and normalisation.
func (r *comparison) unowned(t *target, live *unstructured.Unstructured) difference {
	git := t.desired.DeepCopy()
	r.ignore(git, live)
	return difference{changes: manifest.DiffLive(git, live), git: git, live: manifest.Limited(git, live)}
}

// ownedDiff collects the differences of two objects in the fields of a set.
type ownedDiff struct{ changes []manifest.Change }

// walk compares the fields of set in the values git and live, which are at the place at. A
// subtree that live lacks is one difference.
func (d *ownedDiff) walk(at manifest.Place, set *fieldpath.Set, git, live any) {
	for _, e := range elements(set) {
		place, below := placeBelow(at, e), fieldsBelow(set, e)
		g, l := found(git, e), found(live, e)
		switch {
		case len(g) == 0: // an ignored field that the live object lacks
		case len(l) == 0:
			if ours := withKeys(e, g[0], project(below, g[0])); below == nil || !isEmptyMap(ours) {
				d.change(place, ours, nil)
			}
		case len(g) > 1 || len(l) > 1: // items with equal keys
			if !reflect.DeepEqual(g, l) {
				d.change(place, g, l)
			}
		case below == nil:
			d.changes = append(d.changes, place.Diff(g[0], l[0])...)
		case reflect.TypeOf(g[0]) != reflect.TypeOf(l[0]):
			d.change(place, project(below, g[0]), l[0])
		default:
			d.walk(place, below, g[0], l[0])
		}
	}
}

func (d *ownedDiff) change(at manifest.Place, git, live any) {
	d.changes = append(d.changes, manifest.Change{Path: at.Path, Before: git, After: live})
}

func isEmptyMap(v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
}

// elements returns the first elements of the paths of a set, sorted.
func elements(set *fieldpath.Set) []fieldpath.PathElement {
	var out []fieldpath.PathElement
	for e := range set.Members.All() {
		out = append(out, e)
	}
	for e := range set.Children.All() {
		if !set.Members.Has(e) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, fieldpath.PathElement.Compare)
	return out
}

// fieldsBelow returns the fields of a set below one of its elements; nil if there are none.
func fieldsBelow(set *fieldpath.Set, e fieldpath.PathElement) *fieldpath.Set {
	below, ok := set.Children.Get(e)
	if !ok || below.Empty() {
		return nil
	}
	return below
}

// project returns a JSON value reduced to the fields of set and the key fields of list items;
// for a nil set, v itself. The result shares values with v.
func project(set *fieldpath.Set, v any) any {
	if set == nil {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, e := range elements(set) {
			if values := found(v, e); len(values) > 0 && e.FieldName != nil {
				out[*e.FieldName] = project(fieldsBelow(set, e), values[0])
			}
		}
		return out
	case []any:
		out := []any{}
		for i, item := range v {
			for _, e := range elements(set) {
				if selects(e, item) || e.Index != nil && *e.Index == i {
					out = append(out, withKeys(e, item, project(fieldsBelow(set, e), item)))
					break
				}
			}
		}
		return out
	}
	return v
}

// withKeys returns projected, the projection of item, with the key fields of item that e
// names. It returns values that are not keyed list items unchanged.
func withKeys(e fieldpath.PathElement, item, projected any) any {
	from, ok := item.(map[string]any)
	to, both := projected.(map[string]any)
	if e.Key == nil || !ok || !both {
		return projected
	}
	to = maps.Clone(to)
	for _, key := range *e.Key {
		if v, ok := from[key.Name]; ok {
			to[key.Name] = v
		}
	}
	return to
}

// limited returns an object reduced to its kind, its name and the fields of set.
func limited(set *fieldpath.Set, u *unstructured.Unstructured) *unstructured.Unstructured {
	fields, _ := project(set, u.Object).(map[string]any)
	out := &unstructured.Unstructured{Object: fields}
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		fields["metadata"] = maps.Clone(metadata)
	}
	out.SetAPIVersion(u.GetAPIVersion())
	out.SetKind(u.GetKind())
	out.SetName(u.GetName())
	if u.GetNamespace() != "" {
		out.SetNamespace(u.GetNamespace())
	}
	return out
}

// placeBelow returns the place of a path element below at.
func placeBelow(at manifest.Place, e fieldpath.PathElement) manifest.Place {
	switch {
	case e.FieldName != nil:
		return at.Field(*e.FieldName)
	case e.Key != nil:
		var keys []string
		for _, f := range *e.Key {
			keys = append(keys, f.Name+"="+textOf(f.Value))
		}
		return at.Item(strings.Join(keys, ","))
	case e.Value != nil:
		return at.Item("=" + textOf(*e.Value))
	case e.Index != nil:
		return at.Item(strconv.Itoa(*e.Index))
	}
	return at
}

func textOf(v value.Value) string { return fmt.Sprint(v.Unstructured()) }

// leaf is an owned field without owned fields below it.
type leaf struct {
	path  string // as in manifest.Change
	steps []step
}

// leavesOf returns the fields of an entry of managed fields; nil if they cannot be parsed.
func leavesOf(e metav1.ManagedFieldsEntry) (out []leaf) {
	set, err := setOf(e)
	if err != nil {
		return nil
	}
	set.Leaves().Iterate(func(p fieldpath.Path) {
		var at manifest.Place
		steps := make([]step, len(p))
		for i, e := range p {
			at, steps[i] = placeBelow(at, e), stepOf(e)
		}
		out = append(out, leaf{path: at.Path, steps: steps})
	})
	return out
}

// covers reports whether path is equal to the path above or is below it.
func covers(above, path string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || above == "" || rest[0] == '.' || rest[0] == '[')
}
