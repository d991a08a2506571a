package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/manifest"
)

// fields returns problems of the fields of an object of a built-in kind, one line each:
// unknown fields and values of the wrong type. It checks no other kinds.
func (c *checker) fields(t tree, o manifest.Object) []string {
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil
	}
	read := func(v any) error {
		object, _ := v.(map[string]any)
		return runtime.DefaultUnstructuredConverter.FromUnstructured(object, reflect.New(reflect.TypeOf(typed).Elem()).Interface())
	}
	var out []string
	rest := o.DeepCopy().Object
	for _, f := range unreadable(rest, "", read) {
		out = append(out, fmt.Sprintf("%s: %s %s: %s: %s", placeOf(t, o, f.path), o.GetKind(), o.GetName(), f.path, f.problem))
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rest, typed, true)
	if unknown, ok := runtime.AsStrictDecodingError(err); ok {
		for _, err := range unknown.Errors() {
			out = append(out, unknownLine(t, o, typed, err))
		}
	}
	return out
}

// misread is a field whose value has the wrong type for its kind.
type misread struct{ path, problem string }

// unreadable returns the innermost fields of a value that read rejects, and sets them
// to null. It tests each field alone, because the errors do not name fields.
func unreadable(value any, path string, read func(any) error) (out []misread) {
	err := read(value)
	if err == nil {
		return nil
	}
	descend := func(at string, child any, wrap func(any) any, drop func()) {
		more := unreadable(child, at, func(v any) error { return read(wrap(v)) })
		if len(more) > 0 && more[0].path == at {
			drop()
		}
		out = append(out, more...)
	}
	switch v := value.(type) {
	case map[string]any:
		if read(map[string]any{}) != nil {
			break // no mapping is expected here
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			descend(strings.TrimPrefix(path+"."+key, "."), v[key],
				func(child any) any { return map[string]any{key: child} }, func() { v[key] = nil })
		}
	case []any:
		if read([]any{}) != nil {
			break // no list is expected here
		}
		for i, item := range v {
			descend(fmt.Sprintf("%s[%d]", path, i), item,
				func(child any) any { return []any{child} }, func() { v[i] = nil })
		}
	}
	if len(out) == 0 {
		out = []misread{{path, expectation(err, value)}}
	}
	return out
}

// wanted extracts the Go type from an error of the converter; expected maps it to
// words.
var (
	wanted   = regexp.MustCompile(`^(?:unrecognized type: |cannot convert \w+ to |cannot restore )(string|int|uint|bool|float|slice|map|struct)`)
	expected = map[string]string{
		"string": "a string", "int": "an integer", "uint": "an integer", "bool": "true or false", "float": "a number",
		"slice": "a list", "map": "a mapping", "struct": "a mapping",
	}
)

func expectation(err error, found any) string {
	m := wanted.FindStringSubmatch(err.Error())
	text, jsonErr := json.Marshal(found)
	if m == nil || jsonErr != nil {
		return err.Error()
	}
	return fmt.Sprintf("expected %s, found %s", expected[m[1]], text[:min(len(text), 60)])
}

// placeOf returns the file and line of a field of an object, those of the object if the
// field's line is unknown.
func placeOf(t tree, o manifest.Object, path string) manifest.Origin {
	at := o.Origin
	if data, err := fs.ReadFile(t.fsys, at.File); err == nil && at.Line > 0 {
		if line := manifest.FieldLine(data, at.Line, path); line > 0 {
			at.Line = line
		}
	}
	return at
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// unknownLine formats an error about an unknown field of an object.
func unknownLine(t tree, o manifest.Object, typed runtime.Object, err error) string {
	what := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
	m := unknownField.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Sprintf("%s: %s: cannot be read as %s %s: %v", o.Origin, what, o.GetAPIVersion(), o.GetKind(), err)
	}
	parent, key := "", m[1]
	if i := strings.LastIndex(m[1], "."); i >= 0 {
		parent, key = m[1][:i], m[1][i+1:]
	}
	return fmt.Sprintf("%s: %s: %s: %s %s has no such field%s", placeOf(t, o, m[1]), what, m[1], o.GetAPIVersion(), o.GetKind(),
		strict.Suggest(key, fieldsAt(reflect.TypeOf(typed), parent)))
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

// fieldsAt returns the sorted names of the fields at a path below a type.
func fieldsAt(t reflect.Type, path string) []string {
	for key := range strings.SplitSeq(index.ReplaceAllString(path, ""), ".") {
		t = structOf(t)
		if t == nil || key == "" {
			break
		}
		field := jsonFields(t)[key]
		if field == nil {
			return nil
		}
		t = field
	}
	var names []string
	for name := range jsonFields(structOf(t)) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// structOf returns the struct behind pointers, lists and maps, nil if there is none.
func structOf(t reflect.Type) reflect.Type {
	for t != nil && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// jsonFields returns the types of a struct's fields by JSON name, including inline
// ones.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t == nil {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			for inner, of := range jsonFields(structOf(f.Type)) {
				out[inner] = of
			}
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}
