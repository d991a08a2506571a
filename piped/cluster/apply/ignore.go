package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/manifest"
)

// step is one element of the path to a field of an object.
type step struct {
	// key is the key of a map, or the index of a list item.
	key string
	// item, if not nil, addresses a list item by fields and their values as text, as in
	// [name=web]. The field "" is the item itself.
	item [][2]string
}

// stepOf returns a path element of managed fields as a step.
func stepOf(e fieldpath.PathElement) step {
	switch {
	case e.FieldName != nil:
		return step{key: *e.FieldName}
	case e.Index != nil:
		return step{key: strconv.Itoa(*e.Index)}
	case e.Value != nil:
		return step{item: [][2]string{{"", textOf(*e.Value)}}}
	}
	var s step
	if e.Key != nil {
		for _, f := range *e.Key {
			s.item = append(s.item, [2]string{f.Name, textOf(f.Value)})
		}
	}
	return s
}

// in returns the index of the list item that the step addresses, -1 if there is none.
func (s step) in(list []any) int {
	if s.item == nil {
		i, err := strconv.Atoi(s.key)
		if err != nil || i < 0 || i >= len(list) {
			return -1
		}
		return i
	}
	return slices.IndexFunc(list, func(item any) bool {
		fields, isMap := item.(map[string]any)
		for _, f := range s.item {
			switch {
			case f[0] == "" && fmt.Sprint(item) != f[1]:
				return false
			case f[0] != "" && (!isMap || fields[f[0]] == nil || fmt.Sprint(fields[f[0]]) != f[1]):
				return false
			}
		}
		return true
	})
}

// place returns the place of the step below from.
func (s step) place(from manifest.Place) manifest.Place {
	if s.item == nil {
		return from.Field(s.key)
	}
	names := make([]string, len(s.item))
	for i, f := range s.item {
		names[i] = f[0] + "=" + f[1]
	}
	return from.Item(strings.Join(names, ","))
}

// pathOf formats steps as in manifest.Change.
func pathOf(steps []step) string {
	var at manifest.Place
	for _, s := range steps {
		at = s.place(at)
	}
	return at.Path
}

// get returns the value at steps in v, a JSON value.
func get(v any, steps []step) (at any, ok bool) {
	for _, s := range steps {
		switch from := v.(type) {
		case map[string]any:
			if v, ok = from[s.key]; !ok || s.item != nil {
				return nil, false
			}
		case []any:
			i := s.in(from)
			if i < 0 {
				return nil, false
			}
			v = from[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// put sets the value at steps in v, a JSON value, to to, or removes it if there is false. It
// changes v and returns it. It creates missing maps on the path, but no list items: it only
// appends to as an item that the last step addresses by fields. It changes nothing if the
// path cannot exist.
func put(v any, steps []step, to any, there bool) any {
	if len(steps) == 0 {
		return to
	}
	s, last := steps[0], len(steps) == 1
	switch at := v.(type) {
	case map[string]any:
		child, ok := at[s.key]
		switch {
		case s.item != nil:
		case last && !there:
			delete(at, s.key)
		case last, ok:
			at[s.key] = put(child, steps[1:], to, there)
		case there && steps[1].item == nil:
			at[s.key] = put(map[string]any{}, steps[1:], to, there)
		}
		return at
	case []any:
		i := s.in(at)
		switch {
		case i < 0 && last && there && s.item != nil:
			return append(at, to)
		case i < 0:
		case last && !there:
			return slices.Delete(at, i, i+1)
		default:
			at[i] = put(at[i], steps[1:], to, there)
		}
		return at
	}
	return v
}

// pointer returns the steps of a path of an ignore rule. A malformed path, which a validated
// configuration does not contain, becomes one step that no object has.
func pointer(path string) []step {
	parsed, err := config.ParsePath(path)
	if err != nil {
		return []step{{key: path}}
	}
	steps := make([]step, len(parsed))
	for i, p := range parsed {
		steps[i] = step{key: p.Key, item: p.Item}
	}
	return steps
}

// dotted parses a path as in PipeCD: keys and indexes, separated by dots. A key may contain
// dots: dotted takes the longest key that exists in one of the values.
func dotted(path string, values ...any) []step {
	if path == "" {
		return nil
	}
	key, rest, _ := strings.Cut(path, ".")
	for _, v := range values {
		fields, _ := v.(map[string]any)
		for k := range fields {
			if after, ok := strings.CutPrefix(path, k); ok && len(k) > len(key) && (after == "" || after[0] == '.') {
				key, rest = k, strings.TrimPrefix(after, ".")
			}
		}
	}
	s := step{key: key}
	var below []any
	for _, v := range values {
		if child, ok := get(v, []step{s}); ok {
			below = append(below, child)
		}
	}
	return append([]step{s}, dotted(rest, below...)...)
}

// Yielded returns the rules of mode yield, for Request.Yield: their fields are not managed by
// Git.
func Yielded(d config.DriftDetection) []config.IgnoreRule {
	return slices.DeleteFunc(slices.Clone(d.IgnoreRules), func(r config.IgnoreRule) bool { return r.Mode != config.IgnoreYield })
}

// appliesTo reports whether a rule selects an object by its kind and name.
func appliesTo(r config.IgnoreRule, u *unstructured.Unstructured) bool {
	return (r.Kind == "" || r.Kind == u.GetKind()) && (r.Name == "" || r.Name == u.GetName())
}

// meant returns the fields of a live object that a rule covers: the rule's paths, or the
// fields that its managers own, or with both, the fields at its paths that its managers own.
func meant(r config.IgnoreRule, live *unstructured.Unstructured) (out [][]step) {
	var paths [][]step
	for _, p := range r.Paths {
		paths = append(paths, pointer(p))
	}
	if len(r.Managers) == 0 {
		return paths
	}
	for _, e := range live.GetManagedFields() {
		if !slices.Contains(r.Managers, e.Manager) || isOurs(e) {
			continue
		}
		for _, l := range leavesOf(e) {
			if len(paths) == 0 {
				out = append(out, l.steps)
			}
			for _, p := range paths {
				switch path := pathOf(p); {
				case covers(path, l.path):
					out = append(out, l.steps)
				case covers(l.path, path):
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// ignore copies the fields of req.Ignore from the live object into git, so that they do not
// differ.
func (r *comparison) ignore(git, live *unstructured.Unstructured) {
	asLive := func(steps []step) {
		value, there := get(live.Object, steps)
		put(git.Object, steps, runtime.DeepCopyJSONValue(value), there)
	}
	key := manifest.ResourceKey(live)
	for _, f := range r.compare.Ignore.IgnoreFields {
		if object, path, _ := strings.Cut(f, "#"); object == key {
			asLive(dotted(path, git.Object, live.Object))
		}
	}
	for _, rule := range r.compare.Ignore.IgnoreRules {
		if !appliesTo(rule, live) {
			continue
		}
		for _, steps := range meant(rule, live) {
			asLive(steps)
		}
	}
}

// rulesDigest returns a digest of ignore rules or other JSON values.
func rulesDigest(rules any) string {
	text, err := json.Marshal(rules)
	if err != nil {
		// Unreachable: rules contain only strings.
		panic("kubernetes: rules that are no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
