package variant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/kubernetes"
)

// patchDocuments applies a patch to documents that are embedded in string fields of an
// object, for example app.yaml in a ConfigMap. The patch's DocumentRoot selects the fields.
func patchDocuments(root *yaml.Node, p kubernetes.Patch) error {
	at, err := parsePath(p.Target.DocumentRoot)
	if err != nil {
		return fmt.Errorf("documentRoot %s: %w", p.Target.DocumentRoot, err)
	}
	fields := at.find(root, false)
	if len(fields) == 0 {
		return fmt.Errorf("documentRoot %s: %w", p.Target.DocumentRoot, errNothing)
	}
	for _, field := range fields {
		if field.Kind != yaml.ScalarNode || field.ShortTag() != "!!str" {
			return fmt.Errorf("documentRoot %s: expected a text, which holds the document", p.Target.DocumentRoot)
		}
		for i, op := range p.Ops {
			if field.Value, err = patchText(field.Value, op); err != nil {
				return opError(i, op, err)
			}
		}
	}
	return nil
}

// patchText applies one operation to an embedded document and returns the new text. The
// document must remain valid YAML or JSON.
func patchText(text string, op kubernetes.PatchOp) (string, error) {
	if op.Op == kubernetes.TextRegex {
		return replaceText(text, op)
	}
	f := formatOf(op.Op).like(text)
	doc, err := f.read(text)
	if err != nil {
		return "", err
	}
	if err := change(doc, op); err != nil {
		return "", err
	}
	changed, err := f.write(doc)
	if err != nil {
		return "", err
	}
	if _, err := f.read(changed); err != nil {
		return "", fmt.Errorf("the result is not a valid document: %w", err)
	}
	if !strings.HasSuffix(text, "\n") {
		changed = strings.TrimSuffix(changed, "\n")
	}
	return changed, nil
}

// format parses and serializes documents.
type format interface {
	read(text string) (*yaml.Node, error)
	write(doc *yaml.Node) (string, error) // the result ends with a newline
	like(text string) format              // the format with the indentation of text
}

func formatOf(op kubernetes.PatchKind) format {
	if op == kubernetes.JSONReplace {
		return jsonFormat{}
	}
	return yamlFormat{}
}

// yamlFormat preserves comments and the order of keys.
type yamlFormat struct{}

func (f yamlFormat) like(string) format { return f }

func (yamlFormat) read(text string) (*yaml.Node, error) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nullNode(), nil
	case err != nil:
		return nil, fmt.Errorf("not valid YAML: %w", err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one YAML document, found more")
	}
	var content any // decoding finds errors that parsing does not, such as a cyclic alias
	if err := doc.Decode(&content); err != nil {
		return nil, errors.New("not valid YAML: an alias, a merge or a tag in it cannot be followed")
	}
	root := doc.Content[0]
	if isNull(root) {
		root.Tag = "!!null"
	}
	return root, nil
}

func (yamlFormat) write(doc *yaml.Node) (string, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(doc), enc.Close()); err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	return b.String(), nil
}

// jsonFormat preserves the order of keys and the indentation.
type jsonFormat struct{ indent string } // "": everything on one line

var indentation = regexp.MustCompile(`\n([ \t]+)`)

func (jsonFormat) like(text string) format {
	if m := indentation.FindStringSubmatch(text); m != nil {
		return jsonFormat{m[1]}
	}
	return jsonFormat{}
}

func (jsonFormat) read(text string) (*yaml.Node, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if !json.Valid([]byte(text)) {
		var any json.RawMessage
		return nil, fmt.Errorf("not valid JSON: %w", json.Unmarshal([]byte(text), &any))
	}
	return readJSON(dec)
}

// readJSON returns the decoder's next value as a node. The input must be valid JSON.
func readJSON(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			value, err := readJSON(dec)
			if err != nil {
				return nil, err
			}
			setKey(m, fmt.Sprint(key), value)
		}
		_, err = dec.Token()
		return m, err
	case json.Delim('['):
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for dec.More() {
			item, err := readJSON(dec)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, item)
		}
		_, err = dec.Token()
		return list, err
	}
	return nodeOf(token), nil
}

func (f jsonFormat) write(doc *yaml.Node) (string, error) {
	var b bytes.Buffer
	if err := writeJSON(&b, doc); err != nil {
		return "", err
	}
	if f.indent != "" {
		var indented bytes.Buffer
		if err := json.Indent(&indented, b.Bytes(), "", f.indent); err != nil {
			return "", err
		}
		b = indented
	}
	return b.String() + "\n", nil
}

// writeJSON writes a node from readJSON as JSON on one line.
func writeJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, n.Content[i]); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := writeJSON(b, n.Content[i+1]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		if n.Tag != "!!str" {
			b.WriteString(n.Value) // null, true, false, or a number as written in the input
			return nil
		}
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(n.Value); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the newline
	}
	return nil
}
