package cluster

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

// collision is an item of a live list that Git does not have, and beside which the API
// server accepts none of Git's: a field that no two items may share says the same. It
// comes from who edits what names an item, such as the number of a port that keeps its
// name: to server-side apply that is another item.
type collision struct {
	item   fieldpath.Path // of the live item
	with   fieldpath.Path // of the item of Git
	fields map[string]any // those that both have, and what they say

	owners  []string // of the item
	applied string   // the one of them who applied it, and so would again; "" for nobody
}

// collisionsOf explains by collisions why the API server refused to apply desired over
// live; nil when that explains less than all it found wrong.
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

// joined adds a collision to others; two of the same items become one.
func joined(all []collision, c collision) []collision {
	i := slices.IndexFunc(all, func(other collision) bool { return other.item.Equals(c.item) && other.with.Equals(c.with) })
	if i < 0 {
		return append(all, c)
	}
	maps.Copy(all[i].fields, c.fields)
	return all
}

// listOf returns the pattern of the list in which items have the same field, and that
// field, if this is what the API server found wrong.
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

// patternOf is a path in which all items of a list are the same.
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

// liveItem is an item of a live list that is named by its keys, and who owns it.
type liveItem struct {
	path    fieldpath.Path
	owners  []string
	applied string // the one of them, other than us, who applied it
}

// itemsOf returns the items of an object's lists that somebody owns, in order.
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

// collides reports whether Git lacks the item, and has another one with the same field.
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

// defaultOf is what a field that names items says where Git leaves it out.
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

// named reports whether an item, of Git or a live one, is the one that a path element
// names.
func named(e fieldpath.PathElement, item any) bool {
	fields, ok := item.(map[string]any)
	return ok && e.Key != nil && !slices.ContainsFunc(*e.Key, func(f value.Field) bool {
		return !value.Equals(f.Value, value.NewValueInterface(keyField(fields, f.Name)))
	})
}

// keyOf names an item by the same keys as another one is named.
func keyOf(as fieldpath.PathElement, item map[string]any) fieldpath.PathElement {
	var keys value.FieldList
	for _, f := range *as.Key {
		keys = append(keys, value.Field{Name: f.Name, Value: value.NewValueInterface(keyField(item, f.Name))})
	}
	return fieldpath.PathElement{Key: &keys}
}

// itemAt returns what is at a path of fields and named items in v, a value of JSON; nil
// if there is nothing.
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

// apart returns desired with other values than the live items have that its items
// collide with, so that the API server accepts both beside each other.
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

// without returns what an apply of apart led to as it is without the live items, and
// with the values that Git has. It changes planned.
func without(planned *unstructured.Unstructured, collisions []collision) *unstructured.Unstructured {
	for _, c := range collisions {
		if ours, ok := itemAt(planned.Object, c.with).(map[string]any); ok {
			maps.Copy(ours, c.fields)
		}
		removePath(planned.Object, c.item)
	}
	return planned
}

// cause says what both items have: the same name as list[key=x] in Git.
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

// appliedByOthers returns the collisions with items that somebody else applied.
func appliedByOthers(collisions []collision) []collision {
	return slices.DeleteFunc(slices.Clone(collisions), func(c collision) bool { return c.applied == "" })
}
