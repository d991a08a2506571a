package pipectl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
)

// column is one column of a table. Columns with cut are truncated when the table is
// wider than the terminal; IDs and values for other commands never are.
type column struct {
	title    string
	cut      bool
	optional bool
}

// fixed returns a column that is never truncated, flexible one that may be, optional
// one that is also omitted if all its cells are empty.
func fixed(title string) column    { return column{title: title} }
func flexible(title string) column { return column{title: title, cut: true} }
func optional(title string) column { return column{title: title, cut: true, optional: true} }

// cell is a coloured text in a table.
type cell struct {
	text  string
	color color
}

// table is a list of rows with column titles.
type table struct {
	columns []column
	rows    [][]cell
}

func newTable(columns ...column) *table { return &table{columns: columns} }

// add appends a row of strings, numbers and cells. Empty values are shown as a dash.
func (t *table) add(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		c, ok := v.(cell)
		if !ok {
			c = cell{text: fmt.Sprint(v)}
		}
		if c.text = clean(c.text); c.text == "" {
			c.text = nothing
		}
		row[i] = c
	}
	t.rows = append(t.rows, row)
}

// nothing is shown for empty values.
const nothing = "-"

// shown returns the table without empty optional columns.
func (t *table) shown() *table {
	out := &table{rows: make([][]cell, len(t.rows))}
	for i, c := range t.columns {
		if c.optional && !slices.ContainsFunc(t.rows, func(row []cell) bool { return row[i].text != nothing }) {
			continue
		}
		out.columns = append(out.columns, c)
		for r, row := range t.rows {
			out.rows[r] = append(out.rows[r], row[i])
		}
	}
	return out
}

const (
	gap      = 2 // cells between columns
	leastCut = 8 // minimum width of a truncated column
)

// widths returns the column widths for a terminal of the given width, 0 for no limit.
// It reduces the widest columns that may be truncated.
func (t *table) widths(limit int) []int {
	widths := make([]int, len(t.columns))
	total := gap * (len(t.columns) - 1)
	for i, c := range t.columns {
		widths[i] = uniseg.StringWidth(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], uniseg.StringWidth(row[i].text))
		}
		total += widths[i]
	}
	for limit > 0 && total > limit {
		widest := -1
		for i, c := range t.columns {
			if c.cut && widths[i] > leastCut && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// write prints the table; nothing if it has no rows.
func (t *table) write(s *screen) error {
	if len(t.rows) == 0 {
		return nil
	}
	t = t.shown()
	widths := t.widths(s.width())
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{text: c.title}
	}
	for _, row := range slices.Concat([][]cell{titles}, t.rows) {
		var b strings.Builder
		for i, c := range row {
			text := c.text
			if t.columns[i].cut {
				text = cut(text, widths[i])
			}
			b.WriteString(s.paint(c.color, text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", max(0, widths[i]-uniseg.StringWidth(text))+gap))
			}
		}
		if _, err := fmt.Fprintln(s.out, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
