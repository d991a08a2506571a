package importer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Finding is something of a document that the written files do not express.
type Finding struct {
	File   string // file of the document, or file and line of an object
	Path   string // path of the field in the document
	Reason string // why, and what to do
	// Blocks reports whether nothing is written for the document, because the objects would
	// be others than the live ones.
	Blocks bool
	// Agent reports whether the field belongs into the configuration of the agent.
	Agent bool
}

// String returns the finding as a line.
func (f Finding) String() string {
	if f.Path == "" {
		return f.File + ": " + f.Reason
	}
	return f.File + ": " + f.Path + ": " + f.Reason
}

// track records the findings about a document and which of its fields have been read.
type track struct {
	file     string
	read     map[string]bool
	findings []Finding
}

func (t *track) add(path string, blocks, agent bool, format string, args ...any) {
	f := Finding{t.file, path, fmt.Sprintf(format, args...), blocks, agent}
	if !slices.Contains(t.findings, f) {
		t.findings = append(t.findings, f)
	}
}

// blocked reports whether a finding blocks the document.
func (t *track) blocked() bool {
	return slices.ContainsFunc(t.findings, func(f Finding) bool { return f.Blocks })
}

// field is a field of a document. A field that does not exist has a nil value.
type field struct {
	path  string
	value any
	track *track
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// get returns the field below the keys.
func (f field) get(keys ...string) field {
	for _, key := range keys {
		values, _ := f.value.(map[string]any)
		switch {
		case !plainKey.MatchString(key):
			f.path += fmt.Sprintf("[%q]", key)
		case f.path != "":
			f.path += "." + key
		default:
			f.path = key
		}
		f.value = values[key]
	}
	return f
}

func (f field) exists() bool { return f.value != nil }

// none marks a field as read, with all below it: it needs no counterpart.
func (f field) none() { f.track.read[f.path] = true }

// lost reports that a field, if it exists, cannot be expressed.
func (f field) lost(format string, args ...any) { f.report(false, false, format, args...) }

// block reports that nothing can be written because of a field, if it exists.
func (f field) block(format string, args ...any) { f.report(true, false, format, args...) }

// agent reports that a field, if it exists, belongs into the configuration of the agent.
func (f field) agent(format string, args ...any) { f.report(false, true, format, args...) }

// missing reports that nothing can be written because of a field, even if it does not exist.
func (f field) missing(format string, args ...any) {
	f.none()
	f.track.add(f.path, true, false, format, args...)
}

func (f field) report(blocks, agent bool, format string, args ...any) {
	f.none()
	if f.exists() {
		f.track.add(f.path, blocks, agent, format, args...)
	}
}

// text returns the text of a scalar, "" if the field does not exist.
func (f field) text() string {
	f.none()
	switch v := f.value.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v)
	}
	f.block("expected a text")
	return ""
}

// flag returns a boolean, false if the field does not exist.
func (f field) flag() bool {
	f.none()
	switch v := f.value.(type) {
	case nil:
		return false
	case bool:
		return v
	}
	f.block("expected true or false")
	return false
}

// number returns an integer, and fallback if the field does not exist.
func (f field) number(fallback int) int {
	text := f.text()
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		f.block("expected an integer, found %q", text)
	}
	return n
}

// items returns the items of a list.
func (f field) items() (out []field) {
	values, ok := f.value.([]any)
	if !ok && f.exists() {
		f.block("expected a list")
	}
	for i, v := range values {
		out = append(out, field{fmt.Sprintf("%s[%d]", f.path, i), v, f.track})
	}
	return out
}

// texts returns the texts of a list.
func (f field) texts() (out []string) {
	for _, item := range f.items() {
		out = append(out, item.text())
	}
	return out
}

// keys returns the sorted keys of a mapping.
func (f field) keys() []string {
	values, ok := f.value.(map[string]any)
	if !ok && f.exists() {
		f.block("expected a mapping")
	}
	return slices.Sorted(maps.Keys(values))
}

// pairs returns the texts of a mapping, nil if there are none.
func (f field) pairs() map[string]string {
	var out map[string]string
	for _, key := range f.keys() {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = f.get(key).text()
	}
	return out
}

// raw returns the value with all below it.
func (f field) raw() any {
	f.none()
	return f.value
}

// rest reports the fields that nothing has read.
func (f field) rest() {
	if f.track.read[f.path] {
		return
	}
	switch v := f.value.(type) {
	case map[string]any:
		for _, key := range f.keys() {
			f.get(key).rest()
		}
	case []any:
		for _, item := range f.items() {
			item.rest()
		}
	case nil:
	default:
		f.lost("not known to the import: compare what it does by hand (%v)", shorten(fmt.Sprint(v)))
	}
}

// shorten returns the begin of a text, in one line.
func shorten(text string) string {
	text, _, cut := strings.Cut(text, "\n")
	if r := []rune(text); len(r) > 60 {
		text, cut = string(r[:60]), true
	}
	if cut {
		text += "…"
	}
	return text
}
