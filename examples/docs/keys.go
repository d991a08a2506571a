package main

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/config/schema"
	"github.com/c785c783/piped/piped/config/strict"
)

// key is a configuration key with its description.
type key struct {
	schema.Field
	comment
	typ reflect.Type
}

// keys are those of both files, in the order of their types.
type keys struct {
	of      map[string][]key // by file: Piped, Application
	written map[string]bool  // by file and path: a page has it
}

// stageKeys begins the paths of stage options.
const stageKeys = "pipeline.stages[].with<"

func newKeys(root string) (*keys, error) {
	docs, err := readComments(root)
	if err != nil {
		return nil, err
	}
	k := &keys{of: map[string][]key{}, written: map[string]bool{}}
	var missing []error
	for file, fields := range map[string][]schema.Field{"Piped": app.Kinds().PipedFields(), "Application": app.Kinds()[0].ApplicationFields(), "OpenTofu": openTofuFields()} {
		elsewhere, own := []string{}, []string{} // paths above keys that are described elsewhere, or are our own
		for _, f := range fields {
			name := f.Owner.PkgPath() + "." + f.Owner.Name() + "." + f.Name
			doc, there := docs[name]
			if !there || doc.text == "" {
				missing = append(missing, fmt.Errorf("%s: write a doc comment for %s, which is read from it", f.Path, name))
				continue
			}
			if slices.ContainsFunc(elsewhere, func(above string) bool { return below(f.Path, above) }) {
				continue
			}
			doc.own = doc.own || slices.ContainsFunc(own, func(above string) bool { return below(f.Path, above) })
			if doc.sameKeysAsOf {
				elsewhere = append(elsewhere, f.Path)
			}
			if doc.own {
				own = append(own, f.Path)
			}
			field, _ := f.Owner.FieldByName(f.Name)
			k.of[file] = append(k.of[file], key{f, doc, field.Type})
		}
	}
	return k, errors.Join(missing...)
}

// openTofuFields are the keys that only applications of OpenTofu have.
func openTofuFields() []schema.Field {
	return slices.DeleteFunc(config.OpenTofu().ApplicationFields(), func(f schema.Field) bool {
		return f.Owner.PkgPath() != reflect.TypeFor[opentofu.Spec]().PkgPath()
	})
}

// below reports whether a key stands below another one.
func below(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && rest != "" && strings.ContainsRune(".[<", rune(rest[0]))
}

// table returns the keys at and below some of a file, but for the options of stages.
func (k *keys) table(file string, tops []string) (string, error) {
	var rows []key
	for _, top := range tops {
		before := len(rows)
		for _, key := range k.of[file] {
			if (key.Path == top || below(key.Path, top)) && !strings.HasPrefix(key.Path, stageKeys) {
				rows = append(rows, key)
			}
		}
		if len(rows) == before {
			return "", fmt.Errorf("%s has no key %s", file, top)
		}
	}
	return k.rows(file, "key", rows, func(path string) string { return path })
}

// options returns the options of a stage.
func (k *keys) options(stage string) (string, error) {
	prefix := stageKeys + stage + ">."
	var rows []key
	file := "Application"
	if _, known := app.Kinds()[0].StageOptions()[stage]; !known {
		file = "OpenTofu"
		if _, known := config.OpenTofu().StageOptions()[stage]; !known {
			return "", fmt.Errorf("there is no stage %s", stage)
		}
	}
	for _, key := range k.of[file] {
		if strings.HasPrefix(key.Path, prefix) {
			rows = append(rows, key)
		}
	}
	if len(rows) == 0 {
		return "It has no options.", nil
	}
	return k.rows(file, "option", rows, func(path string) string { return strings.TrimPrefix(path, prefix) })
}

// rows returns a table of keys. Keys that one field describes share a row.
func (k *keys) rows(file, head string, all []key, shown func(path string) string) (string, error) {
	var rows [][]string
	place := map[string]int{}
	for _, key := range all {
		if k.written[file+key.Path] {
			return "", fmt.Errorf("%s is in two tables", key.Path)
		}
		k.written[file+key.Path] = true
		if !key.shown() {
			continue
		}
		name, of := withoutVariant(shown(key.Path))
		name = "`" + name + "`"
		if of != "" {
			name += " of `" + of + "`"
		}
		id := fmt.Sprint(key.Owner, ".", key.Name, key.Default)
		if i, twice := place[id]; twice {
			rows[i][0] = strings.TrimSuffix(rows[i][0], " *") + ", " + name + key.mark()
			continue
		}
		place[id] = len(rows)
		rows = append(rows, []string{name + key.mark(), key.typeName(), key.defaultText(), key.text})
	}
	return table([]string{head, "type", "default", "meaning"}, rows), nil
}

func (k key) mark() string {
	if k.own {
		return " *"
	}
	return ""
}

// shown reports whether a key has a row of its own: mappings without anything to say
// beyond their keys have none.
func (k key) shown() bool {
	return k.Name != "Config" || k.Owner.Name() == "pluginSpec" || k.Owner.Name() == "deployTargetSpec"
}

var variant = regexp.MustCompile(`<(\w+)>`)

// withoutVariant returns a path without the value that decides what stands below one of
// its keys, and that value.
func withoutVariant(path string) (plain, value string) {
	if m := variant.FindStringSubmatch(path); m != nil {
		value = m[1]
	}
	return variant.ReplaceAllString(path, ""), value
}

// own returns the keys of a file that PipeCD does not have.
func (k *keys) own(file string) (string, error) {
	var rows [][]string
	above := []string{}
	for _, key := range k.of[file] {
		if !key.own || slices.ContainsFunc(above, func(a string) bool { return below(key.Path, a) }) {
			continue
		}
		above = append(above, key.Path)
		name, _ := withoutVariant(key.Path)
		rows = append(rows, []string{"`" + name + "`", key.typeName(), key.defaultText(), key.text})
	}
	rows = slices.CompactFunc(rows, slices.Equal)
	return table([]string{"key", "type", "default", "meaning"}, rows), nil
}

// complete fails when a key stands in no table. A mapping whose keys stand in several
// needs no row.
func (k *keys) complete() error {
	var missing []error
	for file, all := range k.of {
		for _, key := range all {
			if !k.written[file+key.Path] && key.typeName() != "mapping" {
				missing = append(missing, fmt.Errorf("%s: no page has a table with %s", file, key.Path))
			}
		}
	}
	return errors.Join(missing...)
}

// defaultText returns what applies when the key is not written.
func (k key) defaultText() string {
	switch {
	case k.required != "":
		return k.required
	case k.defaults != "":
		return k.defaults
	case k.Default != nil && k.Default != "":
		return fmt.Sprintf("`%v`", k.Default)
	}
	return ""
}

// typeName returns what may be written.
func (k key) typeName() string {
	if k.comment.typ != "" {
		return k.comment.typ
	}
	t := k.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	secret := t == reflect.TypeFor[strict.Secret]()
	switch {
	case secret && strings.HasSuffix(k.Name, "Data"):
		return "base64"
	case secret:
		return "string"
	case t.Kind() == reflect.String && strings.HasSuffix(k.Name, "File"):
		return "path"
	}
	if name, ok := typeNames[t]; ok {
		return name
	}
	if enum, ok := reflect.Zero(t).Interface().(strict.Enum); ok {
		return "`" + strings.Join(enum.Values(), "`, `") + "`"
	}
	return kindName(t)
}

// typeNames are the types whose text says more than their kind.
var typeNames = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():         "duration",
	reflect.TypeFor[strict.Duration]():       "duration",
	reflect.TypeFor[strict.Percent]():        "percent",
	reflect.TypeFor[kubernetes.Replicas]():   "int or percent",
	reflect.TypeFor[config.Patterns]():       "patterns",
	reflect.TypeFor[config.Regexp]():         "regexp",
	reflect.TypeFor[config.Schedule]():       "cron",
	reflect.TypeFor[config.TimeZone]():       "string",
	reflect.TypeFor[config.ServiceAccount](): "string",
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Interface:
		return "mapping"
	case reflect.Map:
		return "map"
	case reflect.Slice:
		return cmp.Or(map[bool]string{true: "list of mappings"}[t.Elem().Kind() == reflect.Struct && typeNames[t.Elem()] == ""], "list")
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "string"
	case reflect.Float64:
		return "number"
	}
	return "int"
}
