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

// step is one step on the way to a field of an object.
type step struct {
	// key is the key of a map, or the index of a list's item.
	key string
	// item, if there is some, are the fields of a list's item and what they say as text;
	// the field "" is the item itself.
	item [][2]string
}

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

// in returns the index of the item of a list that the step leads to, -1 for none.
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

// place is where the step leads from a place.
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

func pathOf(steps []step) string {
	var at manifest.Place
	for _, s := range steps {
		at = s.place(at)
	}
	return at.Path
}

// get returns what is at the end of steps in v, a value of JSON.
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

// put returns v, a value of JSON, with to at the end of steps; without there, with
// nothing there. Maps on the way are made where they are missing, items of lists are
// not. It changes v.
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

// pointer returns the steps of a path of a rule. One that is malformed, which a checked
// configuration does not have, leads to nothing.
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

// dotted reads a path as PipeCD writes it, keys and indexes with dots between them. A
// key may have dots itself: the longest key that one of the values has is meant.
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

// Yielded returns the rules for fields not managed by Git, for Request.Yield.
func Yielded(d config.DriftDetection) []config.IgnoreRule {
	return slices.DeleteFunc(slices.Clone(d.IgnoreRules), func(r config.IgnoreRule) bool { return r.Mode != config.IgnoreYield })
}

// appliesTo reports whether a rule is for an object.
func appliesTo(r config.IgnoreRule, u *unstructured.Unstructured) bool {
	return (r.Kind == "" || r.Kind == u.GetKind()) && (r.Name == "" || r.Name == u.GetName())
}

// meant returns the fields of a live object that a rule covers: its paths, the fields of its
// managers, or with both the fields at its paths that those managers own.
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

// ignore copies ignored fields from the live object into the Git object.
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

// rulesDigest returns a digest of rules, or of other values that decide what is ignored.
func rulesDigest(rules any) string {
	text, err := json.Marshal(rules)
	if err != nil {
		// Unreachable: rules are strings.
		panic("kubernetes: rules that are no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
