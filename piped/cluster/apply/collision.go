package apply

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/c785c783/piped/piped/manifest"
)

// collision is an item of a live list that is not in Git and that the API server refuses to
// combine with an item in Git, because both have the same value in a field that must be
// unique. The cause is a change of a key field of the item, such as the number of a port that
// keeps its name: to server-side apply, that is another item.
type collision struct {
	item   fieldpath.Path // of the live item
	with   fieldpath.Path // of the item in Git
	fields map[string]any // the fields with equal values, and these values

	owners  []string // field managers of the live item
	applied string   // the one, but not the agent, that owns it by an apply; "" if none
}

// collisionsOf returns the collisions that made the API server refuse to apply desired over
// live. It returns nil unless collisions explain all causes of the refusal.
func collisionsOf(desired, live *unstructured.Unstructured, refusal error) []collision {
	causes := causesOf(refusal)
	if !apierrors.IsInvalid(refusal) || len(causes) == 0 {
		return nil
	}
	items := itemsOf(live)
	seen := map[string]bool{}
	var out []collision
	for _, cause := range causes {
		list, field, ok := listOf(cause)
		if !ok {
			return nil
		}
		if seen[list+"."+field] {
			continue
		}
		seen[list+"."+field] = true
		found := 0
		for _, item := range items {
			if c, ok := item.collides(desired, live, field); ok && patternOf(item.path) == list {
				out = joined(out, c)
				found++
			}
		}
		if found == 0 {
			return nil
		}
	}
	return out
}

// joined returns all with c added. If all contains a collision of the same two items, the
// fields of c are added to it.
func joined(all []collision, c collision) []collision {
	i := slices.IndexFunc(all, func(other collision) bool { return other.item.Equals(c.item) && other.with.Equals(c.with) })
	if i < 0 {
		return append(all, c)
	}
	maps.Copy(all[i].fields, c.fields)
	return all
}

// listOf returns the list and the field of a duplicate value. List is a pattern as from
// patternOf, such as spec.ports[]. Ok is false if cause is not a duplicate value.
func listOf(cause metav1.StatusCause) (list, field string, ok bool) {
	if cause.Type != metav1.CauseTypeFieldValueDuplicate {
		return "", "", false
	}
	pattern := regexp.MustCompile(`\[\d+\]`).ReplaceAllString(cause.Field, "[]")
	at := strings.LastIndex(pattern, "[].")
	if at < 0 {
		return "", "", false
	}
	list, field = pattern[:at+len("[]")], pattern[at+len("[]."):]
	return list, field, !strings.ContainsAny(field, ".[")
}

// patternOf formats a path without the indexes and keys of items, such as spec.ports[].
func patternOf(path fieldpath.Path) string {
	var out strings.Builder
	for _, e := range path {
		switch {
		case e.FieldName == nil:
			out.WriteString("[]")
		case out.Len() == 0:
			out.WriteString(*e.FieldName)
		default:
			out.WriteString("." + *e.FieldName)
		}
	}
	return out.String()
}

// liveItem is an item of a live list, addressed by its keys, with its owners.
type liveItem struct {
	path    fieldpath.Path
	owners  []string // field managers
	applied string   // as in collision
}

// itemsOf returns the keyed list items of an object that have an owner, sorted by path.
func itemsOf(live *unstructured.Unstructured) []liveItem {
	items := map[string]*liveItem{}
	for _, e := range live.GetManagedFields() {
		set, err := setOf(e)
		if err != nil {
			continue
		}
		set.Iterate(func(p fieldpath.Path) {
			for i, element := range p {
				if element.Key == nil {
					continue
				}
				path := p[:i+1]
				item, ok := items[path.String()]
				if !ok {
					item = &liveItem{path: path.Copy()}
					items[path.String()] = item
				}
				if !slices.Contains(item.owners, e.Manager) {
					item.owners = append(item.owners, e.Manager)
				}
				if e.Operation == metav1.ManagedFieldsOperationApply && !isOurs(e) {
					item.applied = e.Manager
				}
			}
		})
	}
	var out []liveItem
	for _, key := range slices.Sorted(maps.Keys(items)) {
		out = append(out, *items[key])
	}
	return out
}

// collides returns the collision of a live item with an item of the same list in desired that
// has the same value in the field. It returns false if there is no such item, or if desired
// contains the live item itself.
func (i liveItem) collides(desired, live *unstructured.Unstructured, field string) (collision, bool) {
	last := len(i.path) - 1
	theirs, _ := itemAt(live.Object, i.path).(map[string]any)
	list, _ := itemAt(desired.Object, i.path[:last]).([]any)
	if theirs[field] == nil || slices.ContainsFunc(list, func(item any) bool { return named(i.path[last], item) }) {
		return collision{}, false
	}
	for _, item := range list {
		if ours, ok := item.(map[string]any); ok && reflect.DeepEqual(ours[field], theirs[field]) {
			with := append(i.path[:last].Copy(), keyOf(i.path[last], ours))
			return collision{item: i.path, with: with, fields: map[string]any{field: ours[field]}, owners: i.owners, applied: i.applied}, true
		}
	}
	return collision{}, false
}

// defaultOf returns the default of a key field that an item omits; nil for none.
func defaultOf(key string) any {
	if key == "protocol" {
		return "TCP"
	}
	return nil
}

func keyField(item map[string]any, key string) any {
	if v, ok := item[key]; ok {
		return v
	}
	return defaultOf(key)
}

// named reports whether a path element addresses a list item by its key fields.
func named(e fieldpath.PathElement, item any) bool {
	fields, ok := item.(map[string]any)
	return ok && e.Key != nil && !slices.ContainsFunc(*e.Key, func(f value.Field) bool {
		return !value.Equals(f.Value, value.NewValueInterface(keyField(fields, f.Name)))
	})
}

// keyOf returns the path element of a list item. The path element as names the key fields.
func keyOf(as fieldpath.PathElement, item map[string]any) fieldpath.PathElement {
	var keys value.FieldList
	for _, f := range *as.Key {
		keys = append(keys, value.Field{Name: f.Name, Value: value.NewValueInterface(keyField(item, f.Name))})
	}
	return fieldpath.PathElement{Key: &keys}
}

// itemAt returns the value at a path in v, a JSON value; nil if there is none.
func itemAt(v any, path fieldpath.Path) any {
	for _, e := range path {
		switch from := v.(type) {
		case map[string]any:
			if e.FieldName == nil {
				return nil
			}
			v = from[*e.FieldName]
		case []any:
			i := slices.IndexFunc(from, func(item any) bool { return named(e, item) })
			if i < 0 {
				return nil
			}
			v = from[i]
		default:
			return nil
		}
	}
	return v
}

// apart returns a copy of desired whose items do not collide with the live items, so that the
// API server accepts both: colliding strings are replaced and other values are removed.
func apart(desired *unstructured.Unstructured, collisions []collision) *unstructured.Unstructured {
	out := desired.DeepCopy()
	for n, c := range collisions {
		ours, _ := itemAt(out.Object, c.with).(map[string]any)
		for field, value := range c.fields {
			if _, isText := value.(string); isText {
				ours[field] = fmt.Sprintf("piped-%d", n)
			} else {
				delete(ours, field)
			}
		}
	}
	return out
}

// without removes the colliding live items from planned, the result of applying the object
// that apart returned, and restores the values in Git. It changes and returns planned.
func without(planned *unstructured.Unstructured, collisions []collision) *unstructured.Unstructured {
	for _, c := range collisions {
		if ours, ok := itemAt(planned.Object, c.with).(map[string]any); ok {
			maps.Copy(ours, c.fields)
		}
		removePath(planned.Object, c.item)
	}
	return planned
}

// cause describes the equal fields: "the same name as list[key=x] in Git".
func (c collision) cause() string {
	return fmt.Sprintf("the same %s as %s in Git", strings.Join(slices.Sorted(maps.Keys(c.fields)), " and "), placeOf(c.with))
}

// placeOf formats a path as in manifest.Change.
func placeOf(path fieldpath.Path) string {
	var at manifest.Place
	for _, e := range path {
		at = placeBelow(at, e)
	}
	return at.Path
}

// appliedByOthers returns the collisions with items that another manager applied.
func appliedByOthers(collisions []collision) []collision {
	return slices.DeleteFunc(slices.Clone(collisions), func(c collision) bool { return c.applied == "" })
}
