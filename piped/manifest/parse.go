package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	validate "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
)

// Limits of one file. An API server accepts objects of about 1.5 MiB.
const (
	MaxFileSize = 8 << 20
	MaxObjects  = 10_000
)

// Parse returns the objects in a file: YAML with any number of documents, or JSON with any
// number of values. It expands Lists and drops empty documents. Scalars have the same meaning
// as for kubectl (YAML 1.1). Errors are of kind deploy.Invalid, with one line per invalid
// document or value that names the file, the line and the expectation.
func Parse(file string, data []byte) ([]Object, error) {
	if len(data) > MaxFileSize {
		return nil, deploy.Errorf(deploy.Invalid, "%s: the file has %d bytes; expected at most %d", file, len(data), MaxFileSize)
	}
	p := &parser{file: file}
	var err error
	if isJSON(file, data) {
		err = p.jsonValues(data)
	} else {
		err = p.yamlDocuments(data)
	}
	if err = errors.Join(append(p.problems, err)...); err != nil {
		return nil, err
	}
	return p.objects, nil
}

// isJSON reports whether a file is parsed as JSON, where some texts have another meaning than
// in YAML. It decides by the file name, or by a JSON object at the beginning.
func isJSON(file string, data []byte) bool {
	if strings.HasSuffix(file, ".json") {
		return true
	}
	var raw json.RawMessage
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&raw)
	return err == nil && bytes.HasPrefix(raw, []byte("{"))
}

type parser struct {
	file     string
	objects  []Object
	problems []error  // of documents and values, at most maxProblems
	doc      document // the current document
}

// maxProblems bounds the number of reported problems.
const maxProblems = 50

// addProblem records the problem of a document or value, if any, and reports whether
// parsing continues.
func (p *parser) addProblem(err error) bool {
	if err != nil {
		p.problems = append(p.problems, err)
	}
	return len(p.problems) < maxProblems
}

func (p *parser) errorf(line int, format string, args ...any) error {
	return deploy.Errorf(deploy.Invalid, "%s:%d: %w", p.file, line, fmt.Errorf(format, args...))
}

func (p *parser) yamlDocuments(data []byte) error {
	size := 0
	for _, doc := range split(data) {
		text, err := yaml.YAMLToJSONStrict(doc.text)
		if err != nil {
			line, why := yamlError(err, doc)
			if !p.addProblem(p.errorf(line, "%s", why)) {
				return nil
			}
			continue
		}
		if size += len(text); size > 2*MaxFileSize {
			return p.errorf(doc.first, "the file grows beyond %d bytes once its aliases are followed", 2*MaxFileSize)
		}
		p.doc = doc
		if !p.addProblem(p.value(text, doc.first)) {
			return nil
		}
	}
	return nil
}

var yamlPosition = regexp.MustCompile(`line (\d+): `)

// yamlError returns the line in the file and the reason of an error in doc.
func yamlError(err error, doc document) (line int, why string) {
	why = err.Error()
	line = doc.first
	if m := yamlPosition.FindStringSubmatchIndex(why); m != nil {
		n, _ := strconv.Atoi(why[m[2]:m[3]])
		line, why = doc.line+n-1, why[m[1]:]
	}
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: "} {
		why = strings.TrimPrefix(why, prefix)
	}
	if rest, ok := strings.CutSuffix(why, " already set in map"); ok {
		return line, rest + " occurs twice in one mapping"
	}
	if strings.HasPrefix(why, "invalid map key: ") {
		return line, "found a mapping or list, expected a key; templates such as {{ .Values.name }} are not rendered in plain manifests"
	}
	return line, "not valid YAML: " + why
}

// jsonValues adds the objects of a file with any number of JSON values.
func (p *parser) jsonValues(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			offset := dec.InputOffset()
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				offset = syntax.Offset
			} else if errors.Is(err, io.ErrUnexpectedEOF) {
				offset = int64(len(data))
			}
			return p.errorf(lineAt(data, offset), "not valid JSON: %w", err)
		}
		begin := lineAt(data, dec.InputOffset()-int64(len(raw)))
		p.doc = document{text: raw, line: begin, first: begin}
		if !p.addProblem(p.value(raw, begin)) {
			return nil
		}
	}
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte("\n"))
}

// value parses text, a JSON value that starts at a line of the file. It adds the value's
// object, or the items of a list. It ignores null.
func (p *parser) value(text []byte, line int) error {
	var v any
	strict, err := kjson.UnmarshalStrict(text, &v)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return p.errorf(line, "%w", err)
	}
	if v == nil {
		return nil
	}
	object, ok := v.(map[string]any)
	if !ok {
		return p.errorf(line, "expected a Kubernetes object with apiVersion, kind and metadata.name, found %s", describe(v))
	}
	return p.object(object, line, "")
}

// fieldError is an error of one field of an object.
type fieldError struct {
	path string
	error
}

// fieldErrorf returns an error with the line of the field that err names. where and
// what identify the object.
func (p *parser) fieldErrorf(where, what string, err error) error {
	path := where
	if of, ok := errors.AsType[fieldError](err); ok {
		path += of.path
	}
	return p.errorf(p.doc.lineOf(path), "%s%s%w", where, what, err)
}

// object adds one object, or the items of a list. where is the path of a list item, ""
// for a single object.
func (p *parser) object(object map[string]any, line int, where string) error {
	if err := needText(object, "apiVersion", ""); err != nil {
		return p.fieldErrorf(where, "", err)
	}
	if err := needText(object, "kind", ""); err != nil {
		return p.fieldErrorf(where, "", err)
	}
	kind := object["kind"].(string)
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		return p.items(items, where)
	}
	if kind == "List" {
		return p.errorf(line, "%sthe List has no items; expected a list of objects", where)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if err := needText(metadata, "name", "metadata."); err != nil {
		return p.fieldErrorf(where, kind+": ", err)
	}
	if err := checkNames(metadata); err != nil {
		return p.errorf(line, "%s%s: %w", where, kind, err)
	}
	if err := checkMetadata(metadata); err != nil {
		return p.fieldErrorf(where, fmt.Sprintf("%s %s: ", kind, metadata["name"]), err)
	}
	if len(p.objects) == MaxObjects {
		return p.errorf(line, "the file holds more than %d objects", MaxObjects)
	}
	p.objects = append(p.objects, Object{
		Unstructured: &unstructured.Unstructured{Object: object},
		Origin:       Origin{File: p.file, Line: line},
	})
	return nil
}

// needText returns an error unless the key has a text value. prefix is the path of the
// parent.
func needText(m map[string]any, key, prefix string) error {
	switch v := m[key].(type) {
	case nil:
		return fieldError{prefix + key, fmt.Errorf("%s%s is missing; expected a Kubernetes object with apiVersion, kind and metadata.name", prefix, key)}
	case string:
		if strings.TrimSpace(v) == "" {
			return fieldError{prefix + key, fmt.Errorf("%s%s: expected a text, found an empty one", prefix, key)}
		}
		return nil
	default:
		return fieldError{prefix + key, fmt.Errorf("%s%s: expected a text, found %s", prefix, key, describe(v))}
	}
}

// items adds the objects of a list; where is the path of the list, as in object.
func (p *parser) items(items []any, where string) error {
	lines := p.doc.itemLines(where, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%sitems[%d]: ", where, i)
		object, ok := item.(map[string]any)
		if !ok {
			return p.errorf(p.doc.lineOf(at), "%sexpected a Kubernetes object, found %s", at, describe(item))
		}
		if err := p.object(object, lines[i], at); err != nil {
			return err
		}
	}
	return nil
}

// checkNames returns an error for a name or namespace that is not a single segment of a
// request path, because a request would address another object.
func checkNames(metadata map[string]any) error {
	for _, key := range []string{"name", "namespace"} {
		text, _ := metadata[key].(string)
		if why := validate.IsPathSegmentName(text); len(why) > 0 {
			return fmt.Errorf("metadata.%s: %q is not a name: it %s; correct it", key, text, strings.Join(why, " and "))
		}
	}
	return nil
}

// checkMetadata returns an error for label and annotation values that are not strings; reading
// the metadata would silently drop them.
func checkMetadata(metadata map[string]any) error {
	if ns, ok := metadata["namespace"]; ok && ns != nil {
		if _, ok := ns.(string); !ok {
			return fieldError{"metadata.namespace", fmt.Errorf("metadata.namespace: expected a text, found %s", describe(ns))}
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		v, ok := metadata[field]
		if !ok || v == nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return fieldError{"metadata." + field, fmt.Errorf("metadata.%s: expected a mapping, found %s", field, describe(v))}
		}
		for key, value := range m {
			if _, ok := value.(string); !ok {
				return fieldError{"metadata." + field + "[" + key + "]", fmt.Errorf("metadata.%s: %s: expected a text, found %s; put it in quotes", field, key, describe(value))}
			}
		}
	}
	return nil
}

// describe names the type or value of v for errors.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return fmt.Sprintf("the boolean %t", v)
	default:
		return fmt.Sprintf("the number %v", v)
	}
}
