package manifest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"
)

// What stands for a value of a Secret that is another one after than it was before.
const (
	maskedBefore = "(secret, as it was)"
	maskedAfter  = "(secret, changed)"
)

// Hunks returns the difference as those of a unified diff of two YAML texts, with
// three lines around each change; an object that is added or removed is compared
// with nothing. What a Secret may hold is not shown, wherever the Secret stands,
// only whether it changed. Decrypted secrets elsewhere are for who renders the
// objects to leave out.
func (d Difference) Hunks() string {
	before, after := d.masked()
	_, hunks, _ := bytes.Cut(diff.Diff("before", yamlOf(before), "after", yamlOf(after)), []byte("+++ after\n"))
	return string(hunks)
}

// Title names the object as PipeCD writes it.
func (d Difference) Title() string {
	o := d.Object()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return fmt.Sprintf("name=%q, kind=%q, namespace=%q, apiVersion=%q", o.GetName(), o.GetKind(), namespace, o.GetAPIVersion())
}

// masked returns what both sides declare, without what Secrets may hold; nil for a
// side that has nothing.
func (d Difference) masked() (before, after any) {
	if d.Before != nil {
		before = declared(d.Before.Unstructured)
	}
	if d.After != nil {
		after = declared(d.After.Unstructured)
	}
	return conceal(before, after, "", false, maskedBefore), conceal(after, before, "", false, maskedAfter)
}

// conceal returns a copy of a value without what Secrets hold. Other is what stands
// at the same place on the other side, nil if nothing does; a value that differs
// from it becomes changed. Path is the place inside the Secret, if it is in one.
func conceal(v, other any, path string, inSecret bool, changed string) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		o, _ := other.(map[string]any)
		if isSecretMap(v) || isSecretMap(o) {
			path, inSecret = "", true
		}
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = conceal(value, o[key], strings.TrimPrefix(path+"."+key, "."), inSecret, changed)
		}
		return out
	case []any:
		list, _ := other.([]any)
		out := make([]any, len(v))
		for i, value := range v {
			var o any
			if i < len(list) {
				o = list[i]
			}
			out[i] = conceal(value, o, path, inSecret, changed)
		}
		return out
	}
	switch {
	case !inSecret || harmless(path):
		return v
	case other != nil && !reflect.DeepEqual(v, other):
		return changed
	}
	return masked
}

// isSecretMap reports whether a value is a Secret, as such or inside of another
// object.
func isSecretMap(m map[string]any) bool { return m["kind"] == "Secret" && m["apiVersion"] == "v1" }

// yamlOf returns a value as YAML with sorted keys, nothing for nil.
func yamlOf(v any) []byte {
	if v == nil {
		return nil
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		// Unreachable for parsed objects: they hold only what JSON holds.
		panic("manifest: an object that is no YAML: " + err.Error())
	}
	return text
}

// Text returns differences the way PipeCD's plan preview does: what is removed and
// what is added by its name, what is changed with its Hunks.
func Text(ds []Difference) string {
	var b strings.Builder
	b.WriteString("--- Last Deploy\n+++ Head Commit\n\n")
	for i, d := range ordered(ds) {
		switch {
		case d.After == nil:
			fmt.Fprintf(&b, "- %d. %s\n\n", i+1, d.Title())
		case d.Before == nil:
			fmt.Fprintf(&b, "+ %d. %s\n\n", i+1, d.Title())
		default:
			fmt.Fprintf(&b, "# %d. %s\n\n%s\n", i+1, d.Title(), d.Hunks())
		}
	}
	return b.String()
}

// Count returns how many objects are added, changed and removed.
func Count(ds []Difference) (added, changed, removed int) {
	for _, d := range ds {
		switch {
		case d.Before == nil:
			added++
		case d.After == nil:
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}

// ordered returns what is removed, then what is added, then what is changed.
func ordered(ds []Difference) []Difference {
	rank := func(d Difference) int {
		switch {
		case d.After == nil:
			return 0
		case d.Before == nil:
			return 1
		}
		return 2
	}
	out := slices.Clone(ds)
	slices.SortStableFunc(out, func(a, b Difference) int { return rank(a) - rank(b) })
	return out
}
