package page

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/a-h/templ"
)

// Words of the agent's YAML.
const (
	redactedText  = "[redacted]"
	defaultOrigin = "# default"
)

// yamlLine is a line of YAML in parts. Together they are the line.
type yamlLine struct {
	number    int
	indent    string // with the dashes of list items
	key       string // with its colon
	value     string // with the blank before it
	comment   string // with the blank before it
	continues bool   // the value of the line before goes on in it
}

// yamlLines splits YAML into the parts of its lines. It reads block style, as the agent and
// Kubernetes write it; of anything else at worst the parts are wrong.
func yamlLines(text string) []yamlLine {
	var out []yamlLine
	var open openValue
	for line := range strings.Lines(text) {
		line = withoutEscapes(strings.TrimRight(line, "\r\n"))
		l := yamlLine{value: line, continues: true}
		if !open.takes(line) {
			l = splitYAML(line)
			open = l.opens()
		}
		l.number = len(out) + 1
		out = append(out, l)
	}
	return out
}

// splitYAML splits a line that does not go on with a value.
func splitYAML(line string) yamlLine {
	rest := strings.TrimLeft(line, " ")
	for strings.HasPrefix(rest, "- ") {
		rest = strings.TrimLeft(rest[2:], " ")
	}
	l := yamlLine{indent: line[:len(line)-len(rest)]}
	l.key, rest = cutYAMLKey(rest)
	l.value = rest
	if i := commentAt(rest); i >= 0 {
		l.value, l.comment = rest[:i], rest[i:]
	}
	return l
}

// cutYAMLKey splits a key with its colon from what follows.
func cutYAMLKey(text string) (key, rest string) {
	end := quotedEnd(text)
	if end == 0 && !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		end = strings.Index(text+" ", ": ")
	}
	if end <= 0 || !strings.HasPrefix(text[end:]+" ", ": ") {
		return "", text
	}
	return text[:end+1], text[end+1:]
}

// quotedEnd returns the length of the quoted scalar with which a text begins: 0 if it begins with
// none, -1 if that does not end.
func quotedEnd(text string) int {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && text[0] == '"', text[i] == '\'' && text[0] == '\'' && strings.HasPrefix(text[i+1:], "'"):
			i++ // an escaped character
		case text[i] == text[0]:
			return i + 1
		}
	}
	return -1
}

// commentAt returns where the comment after a value begins, with its blank; -1 if there is none.
func commentAt(text string) int {
	if strings.HasPrefix(text, "#") {
		return 0
	}
	value := strings.TrimLeft(text, " ")
	end := quotedEnd(value)
	if end < 0 {
		return -1
	}
	before := len(text) - len(value) + end
	if end == 0 {
		before = 0
	}
	if i := strings.Index(text[before:], " #"); i >= 0 {
		return before + i
	}
	return -1
}

// openValue is a value that goes on in the next lines. The zero value is none.
type openValue struct {
	block  bool
	indent int  // of a block: lines that are indented more belong to it
	quote  byte // ends a quoted scalar; 0 for none
}

// opens returns the value of a line that goes on after it.
func (l yamlLine) opens() openValue {
	value := strings.TrimLeft(l.value, " ")
	switch {
	case value == "":
		return openValue{}
	case value[0] == '|' || value[0] == '>':
		if l.key == "" { // an item of a list
			return openValue{block: true, indent: len(l.indent) - len("- ")}
		}
		return openValue{block: true, indent: len(l.indent)}
	case quotedEnd(value) < 0:
		return openValue{quote: value[0]}
	}
	return openValue{}
}

// takes reports whether a line belongs to the value, and closes it at its end.
func (o *openValue) takes(line string) bool {
	switch {
	case o.block && (strings.TrimSpace(line) == "" || len(line)-len(strings.TrimLeft(line, " ")) > o.indent):
		return true
	case o.quote != 0:
		if quotedEnd(string(o.quote)+strings.TrimLeft(line, " ")) > 0 {
			*o = openValue{}
		}
		return true
	}
	*o = openValue{}
	return false
}

// starts returns the columns at which a line begins: those of the items of lists, and that of its
// key or value.
func (l yamlLine) starts() []int {
	var columns []int
	for i := range l.indent {
		if l.indent[i] == '-' {
			columns = append(columns, i)
		}
	}
	return append(columns, len(l.indent))
}

// withoutDefaults returns the lines but those of defaults. What contains a line that stays, stays.
func withoutDefaults(lines []yamlLine) []yamlLine {
	type parent struct{ column, line int }
	stays := make([]bool, len(lines))
	var parents []parent
	for i, l := range lines {
		if l.continues {
			stays[i] = i > 0 && stays[i-1]
			continue
		}
		columns := l.starts()
		for len(parents) > 0 && parents[len(parents)-1].column >= columns[0] {
			parents = parents[:len(parents)-1]
		}
		if strings.TrimSpace(l.value) != "" && strings.TrimSpace(l.comment) != defaultOrigin {
			stays[i] = true
			for _, p := range parents {
				stays[p.line] = true
			}
		}
		for _, column := range columns {
			parents = append(parents, parent{column, i})
		}
	}
	var out []yamlLine
	for i, l := range lines {
		if stays[i] {
			out = append(out, l)
		}
	}
	return out
}

// yamlText is the content of an element that shows lines as they are: nothing is added between
// them that one would copy.
func yamlText(lines []yamlLine) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var out strings.Builder
		for _, l := range lines {
			fmt.Fprintf(&out, `<span id="L%[1]d" class="line"><a class="number" href="#L%[1]d">%[1]d</a>%[2]s`, l.number, templ.EscapeString(l.indent))
			yamlPart(&out, "key", l.key)
			for i, piece := range strings.Split(l.value, redactedText) {
				if i > 0 {
					yamlPart(&out, "redacted", redactedText)
				}
				yamlPart(&out, "value", piece)
			}
			yamlPart(&out, "comment", l.comment)
			out.WriteString("</span>")
		}
		_, err := io.WriteString(w, out.String())
		return err
	})
}

// yamlPart adds a part of a line.
func yamlPart(out *strings.Builder, class, text string) {
	if text != "" {
		fmt.Fprintf(out, `<span class="%s">%s</span>`, class, templ.EscapeString(text))
	}
}

// configView is a configuration in effect as a tab shows it.
type configView struct {
	path  string // of the tab
	file  string // that it was read from
	lines []yamlLine
	left  int // lines of defaults that are left out
	only  bool
}

// newConfigView returns the view of a configuration. Its address says whether defaults are left
// out.
func newConfigView(path, file, text string, only bool) configView {
	c := configView{path: path, file: file, lines: yamlLines(text), only: only}
	if only {
		all := len(c.lines)
		c.lines = withoutDefaults(c.lines)
		c.left = all - len(c.lines)
	}
	return c
}
