package variant

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// path selects nodes of a document, in the syntax of PipeCD: $ is the document; .key,
// .'a key with dots' and ['key'] are fields; [0] is an item and [*] every item of a list;
// ..key is every field of that name at any depth.
type path []step

// step is one part of a path.
type step struct {
	way   way
	key   string // for byKey and deep
	index int    // for byIndex
}

type way int

const (
	byKey way = iota
	byIndex
	each
	deep
)

var errPath = errors.New("expected a path such as $.spec.template.spec.containers[0].image or $.data.'app.yaml'")

// parsePath parses a path. Its errors wrap errPath.
func parsePath(text string) (path, error) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, errPath
	}
	var p path
	for rest != "" {
		s, after, err := parseStep(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: at %q", errPath, rest)
		}
		p, rest = append(p, s), after
	}
	return p, nil
}

// parseStep parses the first step of text and returns it with the remaining text.
func parseStep(text string) (s step, rest string, err error) {
	switch {
	case strings.HasPrefix(text, ".."):
		s.way = deep
		s.key, rest, err = parseKey(text[2:])
	case strings.HasPrefix(text, "."):
		s.key, rest, err = parseKey(text[1:])
	case strings.HasPrefix(text, "[*]"):
		return step{way: each}, text[len("[*]"):], nil
	case strings.HasPrefix(text, "['"), strings.HasPrefix(text, `["`):
		s.key, rest, err = parseQuoted(text[1:])
		after, closed := strings.CutPrefix(rest, "]")
		if err == nil && !closed {
			err = errPath
		}
		rest = after
	case strings.HasPrefix(text, "["):
		number, after, closed := strings.Cut(text[1:], "]")
		s.way, rest = byIndex, after
		s.index, err = strconv.Atoi(number)
		if !closed || s.index < 0 || strings.HasPrefix(number, "+") {
			err = errPath
		}
	default:
		err = errPath
	}
	return s, rest, err
}

// parseKey parses a key, which may be quoted, and returns it with the remaining text.
func parseKey(text string) (key, rest string, err error) {
	if strings.HasPrefix(text, "'") || strings.HasPrefix(text, `"`) {
		return parseQuoted(text)
	}
	end := strings.IndexAny(text, ".[")
	if end < 0 {
		end = len(text)
	}
	if end == 0 || text[:end] == "*" {
		return "", "", errPath
	}
	return text[:end], text[end:], nil
}

// parseQuoted parses a quoted key, in which a backslash escapes the next character.
func parseQuoted(text string) (key, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == text[0]:
			return b.String(), text[i+1:], nil
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		b.WriteByte(text[i])
	}
	return "", "", errPath
}

// find returns the matching nodes in document order. With grow, it adds missing fields with
// value null.
func (p path) find(root *yaml.Node, grow bool) []*yaml.Node {
	found := []*yaml.Node{root}
	for _, s := range p {
		var next []*yaml.Node
		for _, n := range found {
			next = append(next, s.children(follow(n), grow)...)
		}
		found = next
	}
	return found
}

// follow resolves an alias to its anchor. A change of the result affects all its aliases.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// children returns the nodes that one step selects below n. With grow, it adds a missing
// field with value null, and turns null into a mapping.
func (s step) children(n *yaml.Node, grow bool) (out []*yaml.Node) {
	if grow && s.way == byKey && isNull(n) {
		n.Kind, n.Tag, n.Value, n.Style = yaml.MappingNode, "!!map", "", 0
	}
	switch {
	case n.Kind == yaml.SequenceNode && s.way == each:
		return n.Content
	case n.Kind == yaml.SequenceNode && s.way == byIndex && s.index < len(n.Content):
		return n.Content[s.index : s.index+1]
	case n.Kind == yaml.MappingNode && s.way == byKey:
		if at := field(n, s.key); at >= 0 {
			return n.Content[at+1 : at+2]
		}
		if grow {
			return []*yaml.Node{setKey(n, s.key, nullNode())}
		}
	case s.way == deep:
		for _, m := range mappings(n) {
			if at := field(m, s.key); at >= 0 {
				out = append(out, m.Content[at+1])
			}
		}
	}
	return out
}

// remove deletes the matching nodes and returns their number.
func (p path) remove(root *yaml.Node) (removed int) {
	if len(p) == 0 {
		return 0
	}
	last := p[len(p)-1]
	for _, parent := range p[:len(p)-1].find(root, false) {
		parent = follow(parent)
		holders := []*yaml.Node{parent}
		if last.way == deep {
			holders = mappings(parent)
		}
		for _, holder := range holders {
			removed += last.removeFrom(holder)
		}
	}
	return removed
}

func (s step) removeFrom(n *yaml.Node) (removed int) {
	switch {
	case n.Kind == yaml.MappingNode && (s.way == byKey || s.way == deep):
		if at := field(n, s.key); at >= 0 {
			n.Content = slices.Delete(n.Content, at, at+2)
			return 1
		}
	case n.Kind == yaml.SequenceNode && s.way == each:
		removed, n.Content = len(n.Content), nil
	case n.Kind == yaml.SequenceNode && s.way == byIndex && s.index < len(n.Content):
		n.Content = slices.Delete(n.Content, s.index, s.index+1)
		return 1
	}
	return removed
}

// field returns the index of a key in m.Content, -1 if it is missing. The value's index is
// one higher.
func field(m *yaml.Node, key string) int {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if k := follow(m.Content[i]); k.Kind == yaml.ScalarNode && k.Value == key {
			return i
		}
	}
	return -1
}

// mappings returns all mappings at or below n, outer ones first. It does not follow aliases.
func mappings(n *yaml.Node) (out []*yaml.Node) {
	if n.Kind == yaml.MappingNode {
		out = append(out, n)
	}
	for _, c := range n.Content {
		out = append(out, mappings(c)...)
	}
	return out
}

// setKey sets a field of a mapping and returns value.
func setKey(m *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	if at := field(m, key); at >= 0 {
		m.Content[at+1] = value
	} else {
		m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
	}
	return value
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func nullNode() *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"} }
