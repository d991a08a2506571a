package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// FieldLine returns the line of an object's field in a file. line is the first line of the
// object (Origin.Line), path the field's path, such as spec.containers[0].image. For a missing
// field it returns the line of the nearest parent; 0 if no object starts at that line.
func FieldLine(data []byte, line int, path string) int {
	for _, doc := range split(data) {
		var root yaml.Node
		if yaml.Unmarshal(doc.text, &root) != nil || len(root.Content) == 0 {
			continue
		}
		if n := beginsAt(root.Content[0], line-doc.line+1); n != nil {
			return doc.line - 1 + fieldLine(n, path)
		}
	}
	return 0
}

// beginsAt returns the mapping that starts at a line: the document, or an item of a list of
// objects in it.
func beginsAt(n *yaml.Node, line int) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	if n.Line == line {
		return n
	}
	_, items := child(n, "items")
	if items == nil || items.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range items.Content {
		if found := beginsAt(item, line); found != nil {
			return found
		}
	}
	return nil
}

// segment matches a key, an index, or a bracketed key with dots.
var segment = regexp.MustCompile(`\[[^\]]*\]|[^.\[\] :]+`)

// fieldLine returns the line of the field at path (see FieldLine) below n; if the field is
// missing, the line of its nearest parent.
func fieldLine(n *yaml.Node, path string) int {
	line := n.Line
	for _, key := range segment.FindAllString(path, -1) {
		key = strings.Trim(key, "[]")
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		switch n.Kind {
		case yaml.MappingNode:
			at, value := child(n, key)
			if value == nil {
				return line
			}
			line, n = at.Line, value
		case yaml.SequenceNode:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(n.Content) {
				return line
			}
			n = n.Content[i]
			line = n.Line
		default:
			return line
		}
	}
	return line
}

// child returns a key of a mapping and its value, nil if it is missing.
func child(n *yaml.Node, key string) (at, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// lineOf returns the line in the file of a field of a document.
func (d document) lineOf(path string) int {
	var root yaml.Node
	if yaml.Unmarshal(d.text, &root) != nil || len(root.Content) == 0 {
		return d.first
	}
	return d.line - 1 + fieldLine(root.Content[0], path)
}

// itemLines returns the lines in the file of the items of a list of objects; where is
// the path of the list.
func (d document) itemLines(where string, items int) []int {
	lines := make([]int, items)
	var root yaml.Node
	known := yaml.Unmarshal(d.text, &root) == nil && len(root.Content) > 0
	for i := range lines {
		lines[i] = d.first
		if known {
			lines[i] = d.line - 1 + fieldLine(root.Content[0], fmt.Sprintf("%sitems[%d]", where, i))
		}
	}
	return lines
}
