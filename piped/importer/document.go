package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/deploy"
)

// Document is one object of a file or of a cluster.
type Document struct {
	File   string
	Object map[string]any
}

// maxDocuments and maxFile limit what Parse reads.
const (
	maxDocuments = 10000
	maxFile      = 16 << 20
)

// Parse returns the objects of a file with YAML or JSON, those of lists included. Errors are of
// kind deploy.Invalid.
func Parse(file string, data []byte) (out []Document, err error) {
	if len(data) > maxFile {
		return nil, deploy.Errorf(deploy.Invalid, "%s has more than %d bytes", file, maxFile)
	}
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var value any
		err := documents.Decode(&value)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "%s: %w", file, err)
		}
		if value == nil {
			continue
		}
		object, err := plainJSON(value)
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "%s: expected objects of Kubernetes: %w", file, err)
		}
		out = append(out, flat(Document{file, object})...)
		if len(out) > maxDocuments {
			return nil, deploy.Errorf(deploy.Invalid, "%s has more than %d objects", file, maxDocuments)
		}
	}
}

// plainJSON converts what the YAML decoder returns into the values that JSON has.
func plainJSON(value any) (object map[string]any, err error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	return numbers(object).(map[string]any), nil
}

// numbers converts the numbers below v into int64 and float64.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			v[key] = numbers(child)
		}
	case []any:
		for i, child := range v {
			v[i] = numbers(child)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// flat returns the items of a list, or the object itself.
func flat(d Document) (out []Document) {
	items, isList := d.Object["items"].([]any)
	if !isList {
		return []Document{d}
	}
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			out = append(out, flat(Document{d.File, object})...)
		}
	}
	return out
}

// group returns the API group.
func (d Document) group() string {
	version, _ := d.Object["apiVersion"].(string)
	for i := range version {
		if version[i] == '/' {
			return version[:i]
		}
	}
	return ""
}

func (d Document) kind() string {
	kind, _ := d.Object["kind"].(string)
	return kind
}

func (d Document) meta(key string) string {
	metadata, _ := d.Object["metadata"].(map[string]any)
	text, _ := metadata[key].(string)
	return text
}

func (d Document) name() string      { return d.meta("name") }
func (d Document) namespace() string { return d.meta("namespace") }

// String names the object for users.
func (d Document) String() string {
	if d.namespace() == "" {
		return fmt.Sprintf("%s %s", d.kind(), d.name())
	}
	return fmt.Sprintf("%s %s/%s", d.kind(), d.namespace(), d.name())
}

// root returns the document's fields. Those that only the cluster sets count as read.
func (d Document) root() field {
	f := field{"", d.Object, &track{file: d.File, read: map[string]bool{}}}
	for _, key := range []string{"apiVersion", "kind", "status", "operation"} {
		f.get(key).none()
	}
	for _, key := range []string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		f.get("metadata", key).none()
	}
	return f
}
