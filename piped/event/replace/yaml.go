package replace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

const bom = "\xef\xbb\xbf"

// inYAML replaces the field in every document of the file that has it.
func inYAML(content []byte, field, value string) ([]byte, error) {
	steps, err := parsePath(field)
	if err != nil {
		return nil, err
	}
	text, hasBOM := bytes.CutPrefix(content, []byte(bom))
	docs, err := parseYAML(text)
	if err != nil {
		return nil, fmt.Errorf("read the file as YAML: %w", err)
	}
	found := selectAll(docs, steps)
	if len(found) == 0 {
		return nil, notFound("yamlField", field)
	}
	if out, ok := replaceAll(text, found, steps, value); ok {
		text = out
	} else if text, err = replaceEach(text, found, steps, value); err != nil {
		return nil, fmt.Errorf("yamlField %s, %w", field, err)
	}
	if hasBOM {
		text = append([]byte(bom), text...)
	}
	return text, nil
}

func parseYAML(text []byte) ([]*yaml.Node, error) {
	var docs []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, &doc)
	}
}

// selectAll returns the nodes at the path, in file order.
func selectAll(docs []*yaml.Node, steps []step) []*yaml.Node {
	var out []*yaml.Node
	for _, doc := range docs {
		for _, root := range doc.Content {
			out = selectYAML(root, steps, out)
		}
	}
	return out
}

// selectYAML appends the nodes at the path below n to out. It does not follow aliases; their
// anchor is replaced where it is defined.
func selectYAML(n *yaml.Node, steps []step, out []*yaml.Node) []*yaml.Node {
	if len(steps) == 0 {
		return append(out, n)
	}
	s := steps[0]
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, child := n.Content[i], n.Content[i+1]
			if s.index == every || s.isName() && key.Value == s.name {
				out = selectYAML(child, steps[1:], out)
			} else if s.deep {
				out = selectYAML(child, steps, out)
			}
		}
	case yaml.SequenceNode:
		for i, child := range n.Content {
			switch {
			case s.deep:
				out = selectYAML(child, steps, out)
			case s.index == every || s.index == i:
				out = selectYAML(child, steps[1:], out)
			}
		}
	}
	return out
}

// maxEach limits how many fields are replaced one by one, which is slow.
const maxEach = 100

// replaceAll writes value in its preferred form at all places; ok is false if that is
// not possible.
func replaceAll(text []byte, found []*yaml.Node, steps []step, value string) (out []byte, ok bool) {
	var splices []splice
	places := map[int]*yaml.Node{}
	for i, n := range found {
		if holds(n, value) {
			continue
		}
		from, to, err := extent(text, n)
		if n.Kind != yaml.ScalarNode || err != nil {
			return nil, false
		}
		splices, places[i] = append(splices, splice{from, to, spaced(forms(n, value)[0], from == to)}), n
	}
	out = spliced(text, splices...)
	return out, onlyChanged(text, out, places, steps, value)
}

// replaceEach writes value at the places one by one.
func replaceEach(text []byte, found []*yaml.Node, steps []step, value string) (_ []byte, err error) {
	if len(found) > maxEach {
		return nil, fmt.Errorf("line %d: the value cannot be written at all %d places; write it at one of them and use an alias elsewhere, or name fewer", found[0].Line, len(found))
	}
	// From the last to the first, so that the other offsets stay valid.
	for i := len(found) - 1; i >= 0; i-- {
		if text, err = replaceScalar(text, found[i], i, steps, value); err != nil {
			return nil, fmt.Errorf("line %d: %w", found[i].Line, err)
		}
	}
	return text, nil
}

// holds reports whether a field has the value already.
func holds(n *yaml.Node, value string) bool {
	return n.Kind == yaml.ScalarNode && n.Value == value && n.Tag != "!!null"
}

// spaced returns form, the text of a new value. It adds a leading space if the old value is
// empty, because form then follows a colon or dash.
func spaced(form string, empty bool) string {
	if empty {
		return " " + form
	}
	return form
}

// replaceScalar writes value at n, the nth node at the path. It uses the first form that
// parses as the value and changes no other node.
func replaceScalar(text []byte, n *yaml.Node, nth int, steps []step, value string) ([]byte, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return nil, fmt.Errorf("it is an alias of &%s; name the field that has the value itself", n.Value)
	case n.Kind != yaml.ScalarNode:
		return nil, errors.New("it holds other fields; name one that is a single value")
	case holds(n, value):
		return text, nil
	}
	from, to, err := extent(text, n)
	if err != nil {
		return nil, err
	}
	for _, form := range forms(n, value) {
		out := spliced(text, splice{from, to, spaced(form, from == to)})
		if onlyChanged(text, out, map[int]*yaml.Node{nth: n}, steps, value) {
			return out, nil
		}
	}
	return nil, errors.New("the value cannot be written there without changing other fields")
}

// onlyChanged reports whether text and out differ only in the nodes at the path whose
// positions are keys of places, and whether these have the value.
func onlyChanged(text, out []byte, places map[int]*yaml.Node, steps []step, value string) bool {
	before, err := parseYAML(text)
	if err != nil {
		return false
	}
	after, err := parseYAML(out)
	if err != nil {
		return false
	}
	was, is := selectAll(before, steps), selectAll(after, steps)
	if len(was) != len(is) {
		return false
	}
	for i, n := range places {
		if is[i].Value != value || !keepsType(n, is[i]) {
			return false
		}
		*was[i] = *is[i]
	}
	return sameDocuments(before, after)
}

// keepsType reports whether the new value has the type that the old one requires: numbers
// and booleans keep their type if possible, all others are strings.
func keepsType(was, is *yaml.Node) bool {
	switch was.Tag {
	case "!!int", "!!float":
		return is.Tag == "!!int" || is.Tag == "!!float" || is.Tag == "!!str"
	case "!!bool":
		return is.Tag == "!!bool" || is.Tag == "!!str"
	case "!!null":
		return is.Tag == "!!str"
	}
	return is.Tag == was.Tag
}

// forms returns the ways to write value in place of n, the preferred first.
func forms(n *yaml.Node, value string) []string {
	single := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	double := doubleQuoted(value)
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return []string{double}
	case n.Style&yaml.SingleQuotedStyle != 0:
		return []string{single, double}
	}
	return []string{value, double}
}

// doubleQuoted returns value as a double-quoted YAML string on one line.
func doubleQuoted(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range value {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// sameDocuments reports whether a and b have the same values.
func sameDocuments(a, b []*yaml.Node) bool {
	if len(a) != len(b) {
		return false
	}
	for i, n := range a {
		if !sameNode(n, b[i]) {
			return false
		}
	}
	return true
}

// sameNode reports whether two nodes are equal, including their comments and anchors.
func sameNode(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && a.Anchor == b.Anchor && a.HeadComment == b.HeadComment &&
		a.LineComment == b.LineComment && a.FootComment == b.FootComment && sameDocuments(a.Content, b.Content)
}

// properties matches the anchor and the tag before a value.
var properties = regexp.MustCompile(`^(?:[&!][^\s]*[ \t]+)+`)

// extent returns the byte range of a scalar, without its anchor and tag.
func extent(text []byte, n *yaml.Node) (from, to int, err error) {
	from, ok := offset(text, n.Line, n.Column)
	if !ok {
		return 0, 0, errors.New("its place in the file cannot be determined")
	}
	if n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		from += len(properties.Find(text[from:]))
	}
	rest := text[from:]
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return from, from + blockLength(rest), nil
	case n.Style&yaml.DoubleQuotedStyle != 0:
		to = endOfQuotes(rest, '"', '\\')
	case n.Style&yaml.SingleQuotedStyle != 0:
		to = endOfQuotes(rest, '\'', '\'')
	case bytes.HasPrefix(rest, []byte(n.Value)):
		to = len(n.Value)
	default:
		return 0, 0, errors.New("it is an unquoted string over several lines; write it on one line or in quotes")
	}
	return from, from + to, nil
}

// offset returns the byte offset of a line and column, counted from 1 as in yaml.v3.
func offset(text []byte, line, column int) (at int, ok bool) {
	for ; line > 1; line-- {
		n := nextLine(text[at:])
		if n < 0 {
			return 0, false
		}
		at += n
	}
	for ; column > 1 && at < len(text); column-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at, column <= 1
}

// nextLine returns the offset of the next line, or -1. Line breaks are those of YAML 1.1.
func nextLine(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		switch r {
		case '\r':
			if i < len(text) && text[i] == '\n' {
				i++
			}
			return i
		case '\n', '\u0085', '\u2028', '\u2029':
			return i
		}
	}
	return -1
}

// endOfQuotes returns the length of a quoted text. The byte after escape is literal; if escape
// is the quote itself, a doubled quote is literal.
func endOfQuotes(text []byte, quote, escape byte) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == escape && escape != quote, text[i] == quote && escape == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}

// blockLength returns the length of a block scalar that starts with | or >, without its
// last line break.
func blockLength(text []byte) int {
	end, indent, at := lineLength(text), -1, nextLine(text)
	for at >= 0 && at < len(text) {
		line := text[at : at+lineLength(text[at:])]
		if trimmed := bytes.TrimLeft(line, " "); len(bytes.TrimSpace(trimmed)) > 0 {
			spaces := len(line) - len(trimmed)
			if indent < 0 {
				indent = spaces
			}
			if spaces < indent {
				break
			}
			end = at + len(line)
		}
		n := nextLine(text[at:])
		if n < 0 {
			break
		}
		at += n
	}
	return end
}

// lineLength returns the length of the first line without its line break.
func lineLength(text []byte) int {
	n := nextLine(text)
	if n < 0 {
		return len(text)
	}
	return len(bytes.TrimRight(text[:n], "\r\n\u0085\u2028\u2029"))
}
