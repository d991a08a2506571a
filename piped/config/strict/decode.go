package strict

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// maxVisits bounds the values that are read from one document, aliases
// followed.
const maxVisits = 100_000

// Field says where a decoded node stands: Base is the path that errors show in
// front, Path the field's path from the spec.
type Field struct {
	Base string
	Path string
}

// Rules are the keys that are known but not decoded, by their path from the
// spec; list indices are written [].
type Rules struct {
	// Unsupported keys are problems: this version cannot honour them.
	Unsupported []string
	// Ignored keys give one warning each; the value says why.
	Ignored map[string]string
	// Choices returns what the field of type any of a Choice is read into, by the value
	// that decides: pointers to new structs that hold their defaults.
	Choices func() map[string]any
	// Values are further values of types that implement Enum.
	Values map[reflect.Type][]string
}

// choice returns what v, a pointer to a struct with a field of type any, is read into,
// nil if that cannot be known.
func (r Rules) choice(v any) any {
	switch v := v.(type) {
	case Variant:
		return v.Variant()
	case Choice:
		if _, value := v.Choice(); r.Choices != nil {
			return r.Choices()[value]
		}
	}
	return nil
}

// keys returns the keys directly below parent.
func (r Rules) keys(parent string) []string {
	var keys []string
	for _, path := range slices.AppendSeq(slices.Clone(r.Unsupported), maps.Keys(r.Ignored)) {
		dir, key := "", path
		if i := strings.LastIndex(path, "."); i >= 0 {
			dir, key = path[:i], path[i+1:]
		}
		if dir == parent {
			keys = append(keys, key)
		}
	}
	return keys
}

// Decode reads n into out, a pointer to a struct, and reports every problem to
// d. What it finds keeps the values out held before. Fields may be structs
// (inline ones too), pointers, slices, maps with string keys, strings, bools,
// numbers, durations (Go's form, or a number of nanoseconds), yaml.Node (taken
// as it stands), whatever implements encoding.TextUnmarshaler or Enum, and any
// in a struct that is a Variant or a Choice. An inline field may be an interface that
// holds a pointer to a struct. What is made while decoding, below pointers and
// in lists and maps, begins with the defaults of its Defaulter.
func (d *Document) Decode(n *yaml.Node, at Field, out any, rules Rules) {
	w := &walker{d: d, base: at.Base, rules: rules}
	w.value(n, at.Path, reflect.ValueOf(out).Elem())
}

type walker struct {
	d     *Document
	base  string
	rules Rules
}

func (w *walker) problem(n *yaml.Node, path, format string, args ...any) {
	w.d.broken[join(w.base, path)] = true
	w.d.add(n.Line, join(w.base, path), format, args...)
}

var (
	nodeType     = reflect.TypeFor[yaml.Node]()
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value reads n into v.
func (w *walker) value(n *yaml.Node, path string, v reflect.Value) {
	if !w.visit(n, path) {
		return
	}
	line := n.Line
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		return
	}
	w.d.places[path] = place{line: line, path: join(w.base, path)}
	switch {
	case v.Type() == nodeType:
		v.Set(reflect.ValueOf(*n))
	case v.Type() == durationType || reflect.PointerTo(v.Type()).Implements(textType):
		w.scalar(n, path, v)
	case v.Kind() == reflect.Pointer:
		p := fresh(v.Type().Elem())
		w.value(n, path, p.Elem())
		v.Set(p)
	case v.Kind() == reflect.Struct:
		w.structure(n, path, v)
	case v.Kind() == reflect.Map:
		w.mapping(n, path, v)
	case v.Kind() == reflect.Slice:
		w.list(n, path, v)
	default:
		w.scalar(n, path, v)
	}
}

// visit counts a value and reports whether the document may go on.
func (w *walker) visit(n *yaml.Node, path string) bool {
	w.d.visits++
	if w.d.visits == maxVisits {
		w.problem(n, path, "the document has more than %d values once its aliases are followed", maxVisits)
	}
	return w.d.visits < maxVisits
}

func (w *walker) structure(n *yaml.Node, path string, v reflect.Value) {
	pairs, ok := w.pairs(n, path)
	if !ok {
		return
	}
	fields := map[string]reflect.Value{}
	collect(v, fields)
	known := w.known(path, fields)
	for i := range pairs {
		pairs[i].key = canonical(pairs[i].key, known)
	}
	for _, p := range variantsLast(w.lastOfEach(pairs, path), fields) {
		at := join(path, p.key.Value)
		general := index.ReplaceAllString(at, "[]")
		if slices.Contains(w.rules.Unsupported, general) {
			if !isNull(p.value) {
				w.d.add(p.key.Line, "", "%s is not supported by this version of piped; remove it", join(w.base, at))
			}
		} else if why, ignored := w.rules.Ignored[general]; ignored {
			w.d.places[at] = place{line: p.key.Line, path: join(w.base, at)}
			w.d.Warnf(at, "%s", why)
		} else if f, ok := fields[p.key.Value]; ok {
			w.d.keys[at] = p.key.Line
			w.field(p.value, at, v, f)
		} else {
			w.unknown(p.key, path, known)
		}
	}
}

// field reads n into f, a field of v.
func (w *walker) field(n *yaml.Node, path string, v, f reflect.Value) {
	if f.Kind() != reflect.Interface {
		w.value(n, path, f)
		return
	}
	to := w.rules.choice(v.Addr().Interface())
	if to == nil {
		return
	}
	w.value(n, path, reflect.ValueOf(to).Elem())
	f.Set(reflect.ValueOf(to))
}

var index = regexp.MustCompile(`\[\d+\]`)

// collect gathers the fields of a struct by their yaml names.
func collect(v reflect.Value, into map[string]reflect.Value) {
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			collect(Inlined(v.Field(i)), into)
		case name != "" && name != "-":
			into[name] = v.Field(i)
		}
	}
}

// Inlined returns the struct that an inline field holds: the field itself, or what an
// interface in it points to.
func Inlined(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Interface {
		return v.Elem().Elem()
	}
	return v
}

func (w *walker) mapping(n *yaml.Node, path string, v reflect.Value) {
	pairs, ok := w.pairs(n, path)
	if !ok {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(pairs)))
	for _, p := range pairs {
		at := join(path, p.key.Value)
		if isNull(p.value) {
			w.problem(p.key, at, "expected %s, found nothing", describe(v.Type().Elem()))
			continue
		}
		item := fresh(v.Type().Elem()).Elem()
		w.value(p.value, at, item)
		v.SetMapIndex(reflect.ValueOf(p.key.Value), item)
	}
}

func (w *walker) list(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		w.problem(n, path, "expected a list, found %s", show(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isNull(item) {
			w.problem(item, at, "expected %s, found nothing", describe(v.Type().Elem()))
			continue
		}
		v.Index(i).Set(fresh(v.Type().Elem()).Elem())
		w.value(item, at, v.Index(i))
	}
}

func (w *walker) scalar(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		w.problem(n, path, "expected %s, found %s", describe(v.Type()), show(n))
		return
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := text.UnmarshalText([]byte(n.Value)); err != nil {
			w.problem(n, path, "%s", err)
		}
		return
	}
	if e, ok := v.Interface().(Enum); ok {
		further := w.rules.Values[v.Type()]
		if values := append(e.Values(), further...); !slices.Contains(values, n.Value) {
			expected := describe(v.Type())
			if len(further) > 0 {
				expected = choice(values)
			}
			w.problem(n, path, "expected %s, found %s%s", expected, show(n), suggest(n.Value, values))
			return
		}
		v.SetString(n.Value)
		return
	}
	var err error
	switch {
	case v.Type() == durationType:
		err = setDuration(v, n.Value)
	case v.CanInt():
		err = setInt(v, n.Value)
	case v.CanFloat():
		err = setFloat(v, n.Value)
	default:
		err = n.Decode(v.Addr().Interface())
	}
	if err != nil {
		w.problem(n, path, "expected %s, found %s", describe(v.Type()), show(n))
	}
}

func setDuration(v reflect.Value, text string) error {
	if setInt(v, text) == nil {
		return nil
	}
	duration, err := time.ParseDuration(text)
	v.SetInt(int64(duration))
	return err
}

func setInt(v reflect.Value, text string) error {
	n, err := strconv.ParseInt(text, 10, v.Type().Bits())
	v.SetInt(n)
	return err
}

func setFloat(v reflect.Value, text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
		err = strconv.ErrRange
	}
	v.SetFloat(f)
	return err
}

type pair struct{ key, value *yaml.Node }

// pairs returns the entries of a mapping, those merged in with << included;
// the mapping's own win.
func (w *walker) pairs(n *yaml.Node, path string) ([]pair, bool) {
	if n.Kind != yaml.MappingNode {
		w.problem(n, path, "expected a mapping, found %s", show(n))
		return nil, false
	}
	var own, merged []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			own = append(own, pair{key, value})
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, s := range sources {
			for s.Kind == yaml.AliasNode {
				s = s.Alias
			}
			if !w.visit(s, path) {
				return nil, false
			}
			more, ok := w.pairs(s, path)
			if !ok {
				return nil, false
			}
			for _, p := range more {
				if !w.visit(s, path) {
					return nil, false
				}
				merged = append(merged, p)
			}
		}
	}
	seen := map[string]int{}
	out := own[:0:0]
	for i, p := range append(own, merged...) {
		at, twice := seen[p.key.Value]
		switch {
		case !twice:
			seen[p.key.Value] = len(out)
			out = append(out, p)
		case i < len(own):
			out[at] = p // as in PipeCD, the last one counts; checkKeys has noted it
		}
	}
	return out, true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// show names what a node is, with its text when it is a short scalar.
func show(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	text := []rune(n.Value)
	if len(text) > 60 {
		return strconv.Quote(string(text[:57]) + "...")
	}
	return strconv.Quote(n.Value)
}

// Describer is implemented by types that say what they expect.
type Describer interface{ Expected() string }

func describe(t reflect.Type) string {
	if d, ok := reflect.Zero(t).Interface().(Describer); ok {
		return d.Expected()
	}
	if e, ok := reflect.Zero(t).Interface().(Enum); ok {
		return choice(e.Values())
	}
	if t == durationType {
		return "a duration such as 90s or 5m"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return describe(t.Elem())
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}
