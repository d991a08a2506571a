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

// collision is an item of a live list that is not in Git and that the API server does not
// accept together with an item of Git, because both have the same value in a field that
// must be unique. The cause is an edit of a field that is part of an item's key, such as
// the number of a port that keeps its name: to server-side apply that is another item.
type collision struct {
	item   fieldpath.Path // of the live item
	with   fieldpath.Path // of the item of Git
	fields map[string]any // those that both have, and what they say

	owners  []string // of the item
	applied string   // the one of them who applied it, and so would again; "" for nobody
}

// collisionsOf returns the collisions for which the API server refused to apply desired over
// live, nil unless they explain all causes of the refusal.
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

// joined adds a collision to others; two of the same items are merged.
func joined(all []collision, c collision) []collision {
	i := slices.IndexFunc(all, func(other collision) bool { return other.item.Equals(c.item) && other.with.Equals(c.with) })
	if i < 0 {
		return append(all, c)
	}
	maps.Copy(all[i].fields, c.fields)
	return all
}

// listOf returns, if a cause of the refusal is a duplicate value, the pattern of the list
// and the field.
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

// patternOf returns a path without the indexes and keys of items.
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
	owners  []string
	applied string // the one of them, other than us, who applied it
}

// itemsOf returns the items of an object's lists that have an owner, in order.
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

// collides reports whether the item is not in Git, and another item there has the same
// value in the field.
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

// defaultOf returns the default of a key field.
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

// named reports whether a path element addresses an item.
func named(e fieldpath.PathElement, item any) bool {
	fields, ok := item.(map[string]any)
	return ok && e.Key != nil && !slices.ContainsFunc(*e.Key, func(f value.Field) bool {
		return !value.Equals(f.Value, value.NewValueInterface(keyField(fields, f.Name)))
	})
}

// keyOf returns the path element of an item with the key fields of another one.
func keyOf(as fieldpath.PathElement, item map[string]any) fieldpath.PathElement {
	var keys value.FieldList
	for _, f := range *as.Key {
		keys = append(keys, value.Field{Name: f.Name, Value: value.NewValueInterface(keyField(item, f.Name))})
	}
	return fieldpath.PathElement{Key: &keys}
}

// itemAt returns the value at a path of fields and items in v, a JSON value, or nil.
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

// apart returns desired with values that do not collide with the live items, so that the
// API server accepts both.
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

// without removes the live items from planned, the result of applying apart, and restores
// the values of Git. It changes planned.
func without(planned *unstructured.Unstructured, collisions []collision) *unstructured.Unstructured {
	for _, c := range collisions {
		if ours, ok := itemAt(planned.Object, c.with).(map[string]any); ok {
			maps.Copy(ours, c.fields)
		}
		removePath(planned.Object, c.item)
	}
	return planned
}

// cause describes the shared value: "the same name as list[key=x] in Git".
func (c collision) cause() string {
	return fmt.Sprintf("the same %s as %s in Git", strings.Join(slices.Sorted(maps.Keys(c.fields)), " and "), placeOf(c.with))
}

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
