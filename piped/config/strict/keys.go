package strict

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxListed is how many valid keys an error lists.
const maxListed = 12

// known returns the keys that may stand in the mapping at a path, sorted.
func (w *walker) known(path string, fields map[string]reflect.Value) []string {
	known := w.rules.keys(index.ReplaceAllString(path, "[]"))
	return slices.Sorted(slices.Values(slices.AppendSeq(known, maps.Keys(fields))))
}

// canonical returns a key as it is known, if it differs from that in case alone.
func canonical(key *yaml.Node, known []string) *yaml.Node {
	if slices.Contains(known, key.Value) {
		return key
	}
	i := slices.IndexFunc(known, func(name string) bool { return strings.EqualFold(name, key.Value) })
	if i < 0 {
		return key
	}
	same := *key
	same.Value = known[i]
	return &same
}

// lastOfEach leaves of a key that stands more than once, in different case, the last.
func (w *walker) lastOfEach(pairs []pair, path string) []pair {
	last := map[string]int{}
	for i, p := range pairs {
		if first, twice := last[p.key.Value]; twice {
			w.d.twice(pairs[first].key, p.key, join(w.base, join(path, p.key.Value)))
		}
		last[p.key.Value] = i
	}
	out := pairs[:0:0]
	for i, p := range pairs {
		if last[p.key.Value] == i {
			out = append(out, p)
		}
	}
	return out
}

// unknown reports an error for a key that is a typing error of a known one. It removes any
// other unknown key and reports a warning.
func (w *walker) unknown(key *yaml.Node, path string, known []string) {
	at := join(path, key.Value)
	if near := slipOf(key.Value, known); near != "" {
		w.problem(key, at, "unknown field; did you mean %q?", near)
		return
	}
	w.d.KeepOut(key.Line, join(w.base, at), "unknown field, which is not read%s", expected(key.Value, known))
}

// expected says what may stand in place of a key.
func expected(key string, known []string) string {
	switch near := nearest(key, known); {
	case near != "":
		return fmt.Sprintf("; the nearest known one is %q", near)
	case len(known) == 0 || len(known) > maxListed:
		return ""
	}
	return "; known here: " + strings.Join(known, ", ")
}
