package schema

import (
	"encoding"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
)

// Schema is a JSON Schema, or a part of one, as encoding/json writes it.
type Schema map[string]any

// Typed is implemented by types read from one scalar that know their own schema.
// The others have one by their Go type, or take any scalar.
type Typed interface{ JSONSchema() map[string]any }

// Varied is implemented by pointers to structs with a field of type any, whose
// shape the value of another field decides; see strict.Variant.
type Varied interface {
	// Variants returns the key of the field that decides, and for each of its
	// values a pointer to the struct that the field of type any is then read into,
	// holding its defaults. Where a value is missing, anything may be written.
	Variants() (by string, of map[string]any)
}

// Document returns the schema of a file of one of the given kinds, whose spec
// has the given schema.
func Document(title, apiVersion string, kinds []string, spec Schema) Schema {
	return Schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   title,
		"type":    "object",
		"properties": Schema{
			"apiVersion": Schema{"const": apiVersion},
			"kind":       Schema{"enum": kinds},
			"spec":       Schema{"$ref": "#/$defs/spec"},
		},
		"required":             []string{"apiVersion", "kind"},
		"additionalProperties": false,
		"$defs":                Schema{"spec": spec},
	}
}

// Refused is what a version refuses although the types have it.
type Refused struct {
	// Keys are paths of fields, with list indices written [].
	Keys []string
	// Values are values of deciding fields, by the path of the field; see Varied.
	Values map[string][]string
}

// Object returns the schema of what Decode reads into a struct. value points to
// the struct and holds the defaults; the keys that rules ignore take anything.
func Object(value any, rules strict.Rules, without Refused) Schema {
	return generator{rules: rules, without: without}.object("", reflect.ValueOf(value).Elem())
}

type generator struct {
	rules   strict.Rules
	without Refused
	visit   func(Field) // nil: no visitor
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	nodeType     = reflect.TypeFor[yaml.Node]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// of returns the schema of what is read into v, which holds the default.
func (g generator) of(path string, v reflect.Value) Schema {
	t := v.Type()
	if t == nodeType || t.Kind() == reflect.Interface {
		return Schema{}
	}
	if isDuration(t) {
		return duration()
	}
	switch known := v.Interface().(type) {
	case Typed:
		return known.JSONSchema()
	case strict.Secret:
		return Schema{"type": scalars(), "writeOnly": true}
	case strict.Enum:
		return Schema{"enum": append(known.Values(), g.rules.Values[t]...)}
	}
	if reflect.PointerTo(t).Implements(textType) {
		return describe(Schema{"type": scalars()}, v)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.of(path, fresh(t.Elem()))
	case reflect.Struct:
		return g.object(path, v)
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": g.of(path+".*", fresh(t.Elem()))}
	case reflect.Slice:
		return Schema{"type": "array", "items": g.of(path+"[]", fresh(t.Elem()))}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": scalars()}
	case reflect.Float64:
		return Schema{"type": "number"}
	default:
		return Schema{"type": "integer"}
	}
}

// scalars are the types of a text: 1.20 and true need no quotes.
func scalars() []string { return []string{"string", "number", "boolean"} }

func isDuration(t reflect.Type) bool {
	return t == durationType || t == reflect.TypeFor[strict.Duration]()
}

func duration() Schema {
	return Schema{
		"type":        []string{"string", "integer"},
		"pattern":     `^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`,
		"description": strict.Duration(0).Expected(),
	}
}

func describe(s Schema, v reflect.Value) Schema {
	if d, ok := v.Interface().(strict.Describer); ok {
		s["description"] = d.Expected()
	}
	return s
}

// object returns the schema of a struct.
func (g generator) object(path string, v reflect.Value) Schema {
	properties := Schema{}
	g.fields(path, v, properties)
	for at, why := range g.rules.Ignored {
		if parent, key := split(at); parent == plain(path) {
			properties[key] = Schema{"description": why, "deprecated": true}
		}
	}
	out := Schema{"type": "object", "properties": properties, "additionalProperties": false}
	switch varied := reflect.New(v.Type()).Interface().(type) {
	case Varied:
		by, of := varied.Variants()
		g.variants(path, v.Type(), by, of, out)
	case strict.Choice:
		by, _ := varied.Choice()
		g.variants(path, v.Type(), by, g.rules.Choices(), out)
	}
	return out
}

// fields adds the properties of a struct's fields, those of inline ones too.
func (g generator) fields(path string, v reflect.Value, into Schema) {
	for i := range v.NumField() {
		key, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		at := join(path, key)
		switch {
		case option == "inline":
			g.fields(path, strict.Inlined(v.Field(i)), into)
		case key == "" || key == "-" || slices.Contains(g.rules.Unsupported, plain(at)) || slices.Contains(g.without.Keys, plain(at)):
		default:
			if g.visit != nil {
				value, _ := withDefault(Schema{}, v.Field(i))["default"]
				g.visit(Field{Path: at, Owner: v.Type(), Name: v.Type().Field(i).Name, Default: value})
			}
			into[key] = optional(withDefault(g.of(at, v.Field(i)), v.Field(i)))
		}
	}
}

// variants adds to out, the schema of a struct, what the values of its deciding field,
// by, mean for its field of type any.
func (g generator) variants(path string, t reflect.Type, by string, of map[string]any, out Schema) {
	open := ""
	for i := range t.NumField() {
		if t.Field(i).Type.Kind() == reflect.Interface {
			open, _, _ = strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		}
	}
	values := slices.Sorted(maps.Keys(of))
	values = slices.DeleteFunc(values, func(v string) bool { return slices.Contains(g.without.Values[plain(join(path, by))], v) })
	properties := out["properties"].(Schema)
	if _, known := properties[by].(Schema)["enum"]; !known {
		properties[by] = Schema{"enum": values}
	}
	var rules []Schema
	for _, value := range values {
		shape := optional(g.object(join(path, open)+"<"+value+">", reflect.ValueOf(of[value]).Elem()))
		rules = append(rules, Schema{
			"if":   Schema{"properties": Schema{by: Schema{"const": value}}, "required": []string{by}},
			"then": Schema{"properties": Schema{open: shape}},
		})
	}
	out["allOf"] = rules
}

// optional returns the schema of a property, for which null means that it is not
// written.
func optional(s Schema) Schema {
	switch t := s["type"].(type) {
	case string:
		s["type"] = []string{t, "null"}
	case []string:
		s["type"] = append(slices.Clone(t), "null")
	}
	if values, ok := s["enum"].([]string); ok {
		var all []any
		for _, v := range values {
			all = append(all, v)
		}
		s["enum"] = append(all, nil)
	}
	return s
}

// withDefault adds a scalar's default, as it would be written, to its schema.
// Zero values other than false mean that there is none, or that it depends.
func withDefault(s Schema, v reflect.Value) Schema {
	switch {
	case v.Kind() == reflect.Bool:
		s["default"] = v.Bool()
	case v.IsZero() || v.Type() == reflect.TypeFor[strict.Secret]():
	case isDuration(v.Type()):
		s["default"] = shorten(time.Duration(v.Int()))
	case reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		if text, err := v.Interface().(encoding.TextMarshaler).MarshalText(); err == nil {
			s["default"] = string(text)
		}
	case v.Kind() == reflect.String:
		s["default"] = v.String()
	case v.CanInt():
		s["default"] = v.Int()
	}
	return s
}

// shorten writes a duration as people do: 6h rather than 6h0m0s.
func shorten(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// fresh returns a new value of type t with its defaults; see strict.Defaulter.
func fresh(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(strict.Defaulter); ok {
		d.Default()
	}
	return p.Elem()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func split(path string) (parent, key string) {
	if i := strings.LastIndex(path, "."); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
