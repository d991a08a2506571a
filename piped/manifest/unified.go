package manifest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Replacements for a Secret's value that has changed.
const (
	maskedBefore = "(secret, as it was)"
	maskedAfter  = "(secret, changed)"
)

// Hunks returns the hunks of a unified diff of both objects as YAML, with three lines of
// context. Added and removed objects are compared with an empty text. Values of Secrets are
// masked, also in nested objects. The caller must redact decrypted secrets in other places.
func (d Difference) Hunks() string {
	before, after := d.masked()
	_, hunks, _ := bytes.Cut(diff.Diff("before", yamlOf(before), "after", yamlOf(after)), []byte("+++ after\n"))
	return string(hunks)
}

// Title formats the object's identity like PipeCD.
func (d Difference) Title() string {
	o := d.Object()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return fmt.Sprintf("name=%q, kind=%q, namespace=%q, apiVersion=%q", o.GetName(), o.GetKind(), namespace, o.GetAPIVersion())
}

// masked returns both declarations with masked Secrets; nil for a missing side.
func (d Difference) masked() (before, after any) {
	if d.Before != nil {
		before = declared(d.Before.Unstructured)
	}
	if d.After != nil {
		after = declared(d.After.Unstructured)
	}
	return conceal(before, after, "", false, maskedBefore), conceal(after, before, "", false, maskedAfter)
}

// conceal returns a copy of a value with masked Secrets. other is the value at the same place
// on the other side, nil if missing; a value that differs from it is replaced by changed. path
// is the path inside the Secret if inSecret is set.
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
	case !inSecret || showable(path):
		return v
	case other != nil && !reflect.DeepEqual(v, other):
		return changed
	}
	return masked
}

// Masked returns a copy of an object with masked Secrets, also in nested objects. The caller
// must redact decrypted secrets in other places.
func Masked(u *unstructured.Unstructured) *unstructured.Unstructured {
	out, _ := conceal(u.Object, nil, "", false, masked).(map[string]any)
	return &unstructured.Unstructured{Object: out}
}

// YAML returns an object as YAML with sorted keys.
func YAML(u *unstructured.Unstructured) string { return string(yamlOf(u.Object)) }

// isSecretMap reports whether a value is a Secret.
func isSecretMap(m map[string]any) bool { return m["kind"] == "Secret" && m["apiVersion"] == "v1" }

// yamlOf encodes a value as YAML with sorted keys; nil gives no bytes.
func yamlOf(v any) []byte {
	if v == nil {
		return nil
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		// Unreachable for parsed objects, which contain only JSON values.
		panic("manifest: an object that is no YAML: " + err.Error())
	}
	return text
}

// Text formats differences like PipeCD's plan preview: removed and added objects by
// name, changed ones with their Hunks.
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

// Count returns the number of added, changed and removed objects.
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

// ordered returns removed, then added, then changed objects.
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
