package schema

import (
	"reflect"
	"regexp"

	"github.com/c785c783/piped/piped/config/strict"
)

// Field is a key with the Go field that it is read into, whose doc comment describes
// the key.
type Field struct {
	Path    string       // as Keys writes it
	Owner   reflect.Type // struct with the Go field
	Name    string       // of the Go field
	Default any          // as the schema has it; nil when there is none or it depends
}

// Fields returns the keys that Decode reads into a struct, in the order of the types.
// value is as of Object. Keys that rules ignore are not among them.
func Fields(value any, rules strict.Rules) []Field {
	var fields []Field
	generator{rules: rules, visit: func(f Field) { fields = append(fields, f) }}.object("", reflect.ValueOf(value).Elem())
	return fields
}

var variant = regexp.MustCompile(`<\w+>`)

// plain returns a path as strict.Rules and Refused write it: without the values that
// decide what stands below a key.
func plain(path string) string { return variant.ReplaceAllString(path, "") }
