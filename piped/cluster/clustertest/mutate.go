package clustertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/c785c783/piped/piped/manifest"
)

// Mutation is a possible change of a live object.
type Mutation struct {
	Path  string // of the field that changes, as a drift report writes it
	Owned string // path of the owned field that is, or contains, the changed field
	Patch []byte // JSON patch (RFC 6902) that makes the change
}

// Mutations returns changes of the fields that a manager owns by server-side apply, in a
// fixed order: each value replaced, and each field and list item removed. The API server
// refuses many of them as invalid, or its defaults undo them; this is not known in
// advance.
func Mutations(live *unstructured.Unstructured, manager string) ([]Mutation, error) {
	var m mutator
	for _, e := range live.GetManagedFields() {
		if e.Manager != manager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(strings.NewReader(e.FieldsV1.GetRawString())); err != nil {
			return nil, fmt.Errorf("read the managed fields of %s: %w", live.GetName(), err)
		}
		set.Leaves().Iterate(func(p fieldpath.Path) { m.leaf(live, p) })
	}
	slices.SortFunc(m.out, func(a, b Mutation) int {
		return strings.Compare(a.Path+"\x00"+string(a.Patch), b.Path+"\x00"+string(b.Patch))
	})
	return m.out, m.err
}

type mutator struct {
	out []Mutation
	err error
}

// leaf adds the changes of an owned field.
func (m *mutator) leaf(live *unstructured.Unstructured, path fieldpath.Path) {
	var at manifest.Place
	var value any = live.Object
	pointer := ""
	for _, e := range path {
		var key string
		switch v := value.(type) {
		case map[string]any:
			if e.FieldName == nil {
				return
			}
			key, value = *e.FieldName, v[*e.FieldName]
			at = at.Field(key)
		case []any:
			i := slices.IndexFunc(v, func(item any) bool { return isItem(e, item) })
			if i < 0 {
				return
			}
			key, value = strconv.Itoa(i), v[i]
			at = at.Item(itemName(e))
		default:
			return
		}
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	}
	m.value(at, at.Path, pointer, value)
}

// value adds the changes of a value and of everything in it.
func (m *mutator) value(at manifest.Place, owned, pointer string, v any) {
	m.add(at, owned, map[string]any{"op": "remove", "path": pointer})
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			m.value(at.Field(key), owned, pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), v[key])
		}
	case []any:
		for i, item := range v {
			m.value(at.Item(strconv.Itoa(i)), owned, pointer+"/"+strconv.Itoa(i), item)
		}
	default:
		m.add(at, owned, map[string]any{"op": "replace", "path": pointer, "value": another(v)})
	}
}

func (m *mutator) add(at manifest.Place, owned string, op map[string]any) {
	patch, err := json.Marshal([]any{op})
	if err != nil {
		m.err = err
		return
	}
	m.out = append(m.out, Mutation{Path: at.Path, Owned: owned, Patch: patch})
}

// another returns a value of the same type that is likely to be valid where v is.
func another(v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case int64:
		return v + 1
	case float64:
		return v + 1
	case string:
		if raw, err := base64.StdEncoding.DecodeString(v); err == nil && len(raw) > 0 && len(v) >= 8 {
			return base64.StdEncoding.EncodeToString(append(raw, 'x'))
		}
		if v != "" && v[0] >= '0' && v[0] <= '9' {
			return "1" + v
		}
		return v + "x"
	}
	return "x"
}

func isItem(e fieldpath.PathElement, item any) bool {
	switch {
	case e.Value != nil:
		return fmt.Sprint((*e.Value).Unstructured()) == fmt.Sprint(item)
	case e.Key != nil:
		fields, ok := item.(map[string]any)
		for _, f := range *e.Key {
			ok = ok && fmt.Sprint(f.Value.Unstructured()) == fmt.Sprint(fields[f.Name])
		}
		return ok
	}
	return false
}

func itemName(e fieldpath.PathElement) string {
	if e.Value != nil {
		return "=" + fmt.Sprint((*e.Value).Unstructured())
	}
	var names []string
	for _, f := range *e.Key {
		names = append(names, f.Name+"="+fmt.Sprint(f.Value.Unstructured()))
	}
	return strings.Join(names, ",")
}
