package pipectl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Formats of answers.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"

	// formatTerminal is a table on a terminal, and PipeCD's JSON elsewhere. Users
	// cannot select it.
	formatTerminal = "terminal"

	// Formats of some commands only.
	formatCSV       = "csv"
	formatJSONLines = "jsonl"
)

// printer writes answers to stdout in one format.
type printer struct {
	*screen
	format string
	names  bool // encode enums as names in JSON and YAML
	now    time.Time
	asked  int // number of answers written so far
}

// checkFormat accepts the formats of all commands, and more.
func checkFormat(format string, more ...string) error {
	names := append([]string{formatTable, formatJSON, formatYAML}, more...)
	if slices.Contains(names, format) {
		return nil
	}
	last := len(names) - 1
	return hint(fmt.Errorf("unknown output %q", format), "--output and PIPECTL_OUTPUT are %s or %s", strings.Join(names[:last], ", "), names[last])
}

// print writes a message as text, JSON or YAML. Like PipeCD's pipectl it encodes the
// generated struct with encoding/json (not protojson) on one line. Answers of piped's
// own commands have the names of enums. YAML is converted from that JSON; "---"
// separates documents.
func (p *printer) print(message any, text func(*printer) error) error {
	if p.format == formatTable {
		return text(p)
	}
	data, err := p.marshal(message)
	if err != nil {
		return fmt.Errorf("failed to marshal the response: %w", err)
	}
	if p.format == formatJSON {
		_, err = fmt.Fprintln(p.out, string(data))
		return err
	}
	if data, err = yaml.JSONToYAML(data); err != nil {
		return fmt.Errorf("failed to write the response as YAML: %w", err)
	}
	if p.asked++; p.asked > 1 {
		data = append([]byte("---\n"), data...)
	}
	_, err = p.out.Write(data)
	return err
}

func (p *printer) marshal(message any) ([]byte, error) {
	if m, ok := message.(proto.Message); ok && p.names {
		return namedJSON(m)
	}
	return json.Marshal(message)
}

// linef writes a line of text.
func (p *printer) linef(format string, args ...any) error {
	_, err := fmt.Fprintf(p.out, format+"\n", args...)
	return err
}

// table writes a table, or a sentence if it is empty, and how to get the next page if
// there is a cursor.
func (p *printer) table(t *table, empty, cursor string) error {
	if len(t.rows) == 0 {
		return p.linef("%s", empty)
	}
	if err := t.write(p.screen); err != nil {
		return err
	}
	if cursor == "" {
		return nil
	}
	return p.linef("\n%s", p.paint(faint, "More with --cursor="+clean(cursor)))
}

// cutFrom is the size from which a page may be shorter than requested, because of the
// limit of an answer.
const cutFrom = 1 << 20

// ifMore returns the cursor of a page that may not be the last. PipeCD's lists also
// have a cursor after the last page.
func ifMore(t *table, limit int, page interface {
	proto.Message
	GetCursor() string
}) string {
	if len(t.rows) < limit && proto.Size(page) < cutFrom {
		return ""
	}
	return page.GetCursor()
}

// section writes a heading and a table; nothing for an empty table.
func (p *printer) section(title string, t *table) error {
	if len(t.rows) == 0 {
		return nil
	}
	return errors.Join(p.linef("\n%s", p.paint(cyan, title)), t.write(p.screen))
}

// field is a line with a name and a value.
type field struct {
	name  string
	value any // a string, a number or a cell
}

// fields writes lines with names and values; empty values are omitted.
func (p *printer) fields(fields ...field) error {
	cells, width := make([]cell, len(fields)), 0
	for i, f := range fields {
		c, ok := f.value.(cell)
		if !ok {
			c = cell{text: fmt.Sprint(f.value)}
		}
		if c.text = clean(c.text); c.text != "" {
			width = max(width, len(f.name))
		}
		cells[i] = c
	}
	for i, c := range cells {
		if c.text == "" {
			continue
		}
		if err := p.linef("%-*s  %s", width+1, fields[i].name+":", p.paint(c.color, c.text)); err != nil {
			return err
		}
	}
	return nil
}

// diff writes a unified diff in colours.
func (p *printer) diff(text string) error {
	for line := range strings.SplitSeq(strings.TrimRight(cleanLines(text), "\n"), "\n") {
		c := plain
		switch {
		case strings.HasPrefix(line, "+"):
			c = green
		case strings.HasPrefix(line, "-"):
			c = red
		case strings.HasPrefix(line, "@@"):
			c = cyan
		}
		if err := p.linef("%s", p.paint(c, line)); err != nil {
			return err
		}
	}
	return nil
}
