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

	// formatTerminal is a table on a terminal, and PipeCD's JSON for everything else.
	// No user asks for it.
	formatTerminal = "terminal"

	// Only some commands have these.
	formatCSV       = "csv"
	formatJSONLines = "jsonl"
)

// printer writes answers to stdout in one format.
type printer struct {
	*screen
	format string
	names  bool // enums are names in JSON and YAML
	now    time.Time
	asked  int // answers written so far
}

// checkFormat accepts the names of the formats that all commands have, and more.
func checkFormat(format string, more ...string) error {
	names := append([]string{formatTable, formatJSON, formatYAML}, more...)
	if slices.Contains(names, format) {
		return nil
	}
	last := len(names) - 1
	return hint(fmt.Errorf("unknown output %q", format), "--output and PIPECTL_OUTPUT are %s or %s", strings.Join(names[:last], ", "), names[last])
}

// print writes a message: as text, or as the real pipectl does, encoding/json
// of the generated struct, not protojson, on one line. In the answers of our own
// commands enums are names. YAML is that JSON in other words; its documents are
// parted by a line of dashes.
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

// table writes a table, or a sentence when it is empty, and how to see more when
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

// cutFrom is a size from which on a page may be shorter than asked for because
// more would not fit in an answer.
const cutFrom = 1 << 20

// ifMore is the cursor of a page that may not be the last. PipeCD's lists have one
// behind the last page, too, where there is nothing more to see.
func ifMore(t *table, limit int, page interface {
	proto.Message
	GetCursor() string
}) string {
	if len(t.rows) < limit && proto.Size(page) < cutFrom {
		return ""
	}
	return page.GetCursor()
}

// section writes a heading and a table under it; an empty table is left out.
func (p *printer) section(title string, t *table) error {
	if len(t.rows) == 0 {
		return nil
	}
	return errors.Join(p.linef("\n%s", p.paint(cyan, title)), t.write(p.screen))
}

// field is a line of what is shown about one thing.
type field struct {
	name  string
	value any // a string, a number or a cell
}

// fields writes names and values below each other; empty values are left out.
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
