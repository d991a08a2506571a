package strict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// MaxSize is the largest document that is read, in bytes.
const MaxSize = 1 << 20

// Limits of what is reported, so that a file of rubbish makes no book.
const (
	maxProblems = 50
	maxPath     = 200
)

// Problem is one thing wrong with a document.
type Problem struct {
	File string
	Line int    // 0 when unknown
	Path string // dotted path of the field; "" for the document as a whole
	Text string
}

// String returns "file:line: path: text" without the parts that are unknown.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is everything wrong with a document, in the order of its lines.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Document is one YAML document and what was found wrong with it so far. It is
// not safe for concurrent use.
type Document struct {
	File     string
	Kind     string
	KindLine int
	Spec     *yaml.Node

	problems Problems
	warnings []string
	unread   []string // lines about what is kept out
	places   map[string]place
	keys     map[string]int  // lines of the keys of fields
	broken   map[string]bool // fields that could not be decoded
	visits   int
	line     int
}

// place is where a field of the spec stands.
type place struct {
	line int
	path string
}

// Parse reads the first document in data, which must have the given apiVersion and a
// kind; without a spec, that is empty. Its error is of type Problems; name stands for
// the file in it.
func Parse(name string, data []byte, apiVersion string) (*Document, error) {
	d := &Document{File: name, places: map[string]place{}, keys: map[string]int{}, broken: map[string]bool{}}
	root, err := d.single(data)
	if err != nil {
		return nil, err
	}
	d.line = root.Line
	d.checkKeys(root, "")
	if err := d.Err(); err != nil {
		return nil, err
	}
	var envelope struct {
		APIVersion string    `yaml:"apiVersion"`
		Kind       string    `yaml:"kind"`
		Spec       yaml.Node `yaml:"spec"`
	}
	d.Decode(root, Field{}, &envelope, Rules{})
	if envelope.APIVersion != apiVersion {
		d.add(max(root.Line, d.places["apiVersion"].line), "apiVersion", "expected %s, found %q", apiVersion, envelope.APIVersion)
	}
	if envelope.Kind == "" {
		d.add(root.Line, "kind", "required")
	}
	switch {
	case envelope.Spec.IsZero():
		envelope.Spec = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line}
	case envelope.Spec.Kind != yaml.MappingNode:
		d.add(envelope.Spec.Line, "spec", "expected a mapping, found %s", show(&envelope.Spec))
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	d.Kind, d.KindLine = envelope.Kind, d.places["kind"].line
	d.Spec, d.line = &envelope.Spec, envelope.Spec.Line
	clear(d.places)
	clear(d.keys)
	return d, nil
}

// Header returns the nodes of apiVersion and kind in the first document of a file, which may
// be invalid otherwise; a node that is not there, or no scalar, is the zero value. It takes
// time proportional to the size of the file: yaml.Unmarshal compares each key of a mapping
// with each other one.
func Header(data []byte) (apiVersion, kind yaml.Node) {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return apiVersion, kind
	}
	for pair := range slices.Chunk(doc.Content[0].Content, 2) {
		value := pair[1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		switch {
		case value.Kind != yaml.ScalarNode || isNull(value):
		case pair[0].Value == "apiVersion":
			apiVersion = *value
		case pair[0].Value == "kind":
			kind = *value
		}
	}
	return apiVersion, kind
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// single returns the only mapping in data.
func (d *Document) single(data []byte) (*yaml.Node, error) {
	if len(data) > MaxSize {
		return nil, d.only(0, "the file has %d bytes; expected at most %d", len(data), MaxSize)
	}
	var root *yaml.Node
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			text, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
			if m := yamlLine.FindStringSubmatch(text); m != nil {
				line, _ = strconv.Atoi(m[1])
				text = text[len(m[0]):]
			}
			return nil, d.only(line, "not valid YAML: %s", text)
		}
		switch {
		case len(n.Content) == 0 || isNull(n.Content[0]):
		case root != nil:
			d.KeepOut(n.Content[0].Line, "", "another document begins here, which is not read: only the first one counts")
			return root, d.checkRoot(root)
		default:
			root = n.Content[0]
		}
	}
	return root, d.checkRoot(root)
}

// checkRoot returns what is wrong with a document that is no mapping, or is not there.
func (d *Document) checkRoot(root *yaml.Node) error {
	switch {
	case root == nil:
		return d.only(0, "the file is empty; expected apiVersion, kind and spec")
	case root.Kind != yaml.MappingNode:
		return d.only(root.Line, "expected a mapping with apiVersion, kind and spec, found %s", show(root))
	}
	return nil
}

func (d *Document) only(line int, format string, args ...any) error {
	return Problems{{File: d.File, Line: line, Text: fmt.Sprintf(format, args...)}}
}

// checkKeys reports keys that are no scalars, and notes those that stand twice in one
// mapping.
func (d *Document) checkKeys(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			d.checkKeys(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.MappingNode:
		seen := map[string]*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				d.add(key.Line, path, "expected a plain key, found %s", show(key))
				continue
			}
			at := join(path, key.Value)
			if first, again := seen[key.Value]; again {
				d.twice(first, key, at)
			}
			seen[key.Value] = key
			d.checkKeys(n.Content[i+1], at)
		}
	}
}

func (d *Document) add(line int, path, format string, args ...any) {
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "") + "..."
	}
	d.problems = append(d.problems, Problem{File: d.File, Line: line, Path: path, Text: fmt.Sprintf(format, args...)})
}

// KeepOut notes what of the document is not read, by the full path of a field.
func (d *Document) KeepOut(line int, path, format string, args ...any) {
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "") + "..."
	}
	d.unread = append(d.unread, Problem{File: d.File, Line: line, Path: path, Text: fmt.Sprintf(format, args...)}.String())
}

// twice notes a key that stands more than once in a mapping.
func (d *Document) twice(first, last *yaml.Node, path string) {
	d.KeepOut(first.Line, path, "is not read, because the key stands again in line %d", last.Line)
}

// Unread returns what of the document is not read, one line each, in the order in
// which it was found: keys that are unknown, keys that are set again, and documents
// that follow the first.
func (d *Document) Unread() []string {
	if more := len(d.unread) - maxProblems; more > 0 {
		return append(slices.Clone(d.unread[:maxProblems]), fmt.Sprintf("%s: and %d more keys that are not read", d.File, more))
	}
	return slices.Clone(d.unread)
}

// Problemf reports a problem with the field at the given path of the spec. A
// field that is not in the document is reported at its nearest parent's line.
// A field that could not be decoded has its problem already: nothing is added.
func (d *Document) Problemf(field, format string, args ...any) {
	p := d.place(field)
	if d.broken[p.path] {
		return
	}
	d.add(p.line, p.path, format, args...)
}

// Warnf notes a warning about the field at the given path of the spec.
func (d *Document) Warnf(field, format string, args ...any) {
	p := d.place(field)
	d.warnings = append(d.warnings, fmt.Sprintf("%s:%d: %s: %s", d.File, p.line, p.path, fmt.Sprintf(format, args...)))
}

// Unsupported reports the field at the given path of the spec, or what stands
// there, as one that this version cannot honour.
func (d *Document) Unsupported(field, what string) {
	p := d.place(field)
	if line, ok := d.keys[field]; ok {
		p.line = line
	}
	if what == "" {
		d.add(p.line, "", "%s is not supported by this version of piped; remove it", p.path)
		return
	}
	d.add(p.line, p.path, "%s is not supported by this version of piped; remove it", what)
}

// Has reports whether the field at the given path of the spec was set.
func (d *Document) Has(field string) bool {
	_, ok := d.places[field]
	return ok
}

// Fields returns the paths of all fields of the spec that were set.
func (d *Document) Fields() map[string]bool {
	fields := make(map[string]bool, len(d.places))
	for field := range d.places {
		fields[field] = true
	}
	return fields
}

// Position returns where the field at the given path of the spec stands, as
// file:line.
func (d *Document) Position(field string) string {
	line, ok := d.keys[field]
	if !ok {
		line = d.place(field).line
	}
	return fmt.Sprintf("%s:%d", d.File, line)
}

func (d *Document) place(field string) place {
	if p, ok := d.places[field]; ok {
		return p
	}
	line := d.line
	for parent := field; line == d.line; {
		i := strings.LastIndexAny(parent, ".[")
		if i < 0 {
			break
		}
		parent = parent[:i]
		if p, ok := d.places[parent]; ok {
			line = p.line
			break
		}
	}
	return place{line: line, path: join("spec", field)}
}

// Warnings returns the warnings noted so far, one line each.
func (d *Document) Warnings() []string { return slices.Clone(d.warnings) }

// Err returns every problem found so far as a Problems, or nil.
func (d *Document) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	ps := slices.Clone(d.problems)
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Path, b.Path), strings.Compare(a.Text, b.Text))
	})
	if more := len(ps) - maxProblems; more > 0 {
		ps = append(ps[:maxProblems], Problem{File: d.File, Text: fmt.Sprintf("and %d more problems", more)})
	}
	return ps
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
