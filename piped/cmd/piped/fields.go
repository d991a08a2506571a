package main

import (
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/manifest"
)

// fields returns what is wrong with the fields of an object of a kind that Kubernetes
// has built in, one line each: those that the kind does not have, or values that it
// cannot hold. Of other kinds nothing is known.
func (c *checker) fields(t tree, o manifest.Object) []string {
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true)
	all := []error{err}
	if unknown, ok := runtime.AsStrictDecodingError(err); ok {
		all = unknown.Errors()
	}
	var out []string
	for _, err := range all {
		if err != nil {
			out = append(out, fieldLine(t, o, typed, err))
		}
	}
	return out
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// fieldLine describes an error about a field of an object, with the file and line.
func fieldLine(t tree, o manifest.Object, typed runtime.Object, err error) string {
	what := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
	m := unknownField.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Sprintf("%s: %s: cannot be read as %s %s: %v", o.Origin, what, o.GetAPIVersion(), o.GetKind(), err)
	}
	at := o.Origin
	if data, err := fs.ReadFile(t.fsys, at.File); err == nil && at.Line > 0 {
		if line := manifest.FieldLine(data, at.Line, m[1]); line > 0 {
			at.Line = line
		}
	}
	parent, key := "", m[1]
	if i := strings.LastIndex(m[1], "."); i >= 0 {
		parent, key = m[1][:i], m[1][i+1:]
	}
	return fmt.Sprintf("%s: %s: %s: %s %s has no such field%s", at, what, m[1], o.GetAPIVersion(), o.GetKind(),
		strict.Suggest(key, fieldsAt(reflect.TypeOf(typed), parent)))
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

// fieldsAt returns the names of the fields at a path below a type, sorted.
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

// structOf returns the struct behind pointers, lists and maps, nil when there is none.
func structOf(t reflect.Type) reflect.Type {
	for t != nil && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// jsonFields returns the types of a struct's fields, those of inline ones too, by their
// names in JSON.
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
