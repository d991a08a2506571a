package store

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// position is the last row of a page, in descending order of the update time or another time,
// then by ID. A cursor is its opaque form.
type position struct {
	UpdatedAt int64  `json:"u"`
	ID        string `json:"i"`
}

// cursorAt returns the cursor for the rows after a row; at is the time by which rows are
// ordered.
func cursorAt(at time.Time, id string) string {
	b, _ := json.Marshal(position{toMilli(at), id}) // cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(cursor string) (position, error) {
	var p position
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, errCursor()
	}
	return p, nil
}

func errCursor() error {
	return deploy.Errorf(deploy.Invalid, "the cursor is not one that a list returned: leave it empty to start from the first page")
}

// extra returns the limit of a query for a page of n rows: one more row shows whether there is
// a next page. 0 means no limit.
func extra(n int) int {
	if n <= 0 {
		return 0
	}
	return n + 1
}

// filter collects the conditions of a list query and their arguments.
type filter struct {
	conds []string
	args  []any
}

// add adds a condition with its arguments; conditions are joined by AND.
func (f *filter) add(cond string, args ...any) {
	f.conds = append(f.conds, cond)
	f.args = append(f.args, args...)
}

// equal adds "column = value" unless the value is empty.
func (f *filter) equal(column, value string) {
	if value != "" {
		f.add(column+" = ?", value)
	}
}

// sift is equal, but keeps SQLite from using an index: nearly all rows have the value, or
// other conditions leave few rows.
func (f *filter) sift(column, value string) {
	if value != "" {
		f.add(column+" || '' = ?", value)
	}
}

// in adds "column IN (…)" unless the list is empty.
func in[S ~string](f *filter, column string, list []S) {
	if len(list) > 0 {
		f.add(column+" IN ("+placeholders(len(list))+")", anys(list)...)
	}
}

// labels adds a condition for each label. owner is the column of table that refers to a row,
// id the ID column of that row. SQLite would turn conditions with EXISTS into a join, with
// another order of rows.
func (f *filter) labels(table, owner, id string, labels map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		f.add("(SELECT l.value FROM "+table+" l WHERE l."+owner+" = "+id+" AND l.name = ?) = ?", name, labels[name])
	}
}

// after selects the rows after a cursor, the last updated first.
func (f *filter) after(cursor string) error { return f.afterBy("updated_at", cursor) }

// afterBy selects the rows after a cursor in descending order of a column.
func (f *filter) afterBy(column, cursor string) error {
	if cursor == "" {
		return nil
	}
	p, err := parseCursor(cursor)
	if err != nil {
		return err
	}
	f.add(column+" <= ? AND ("+column+" < ? OR id > ?)", p.UpdatedAt, p.UpdatedAt, p.ID)
	return nil
}

// where returns the conditions as a WHERE clause, "" without conditions.
func (f *filter) where() string {
	if len(f.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(f.conds, " AND ")
}

// limit adds a LIMIT to the query when n is positive.
func (f *filter) limit(query string, n int) string {
	if n <= 0 {
		return query
	}
	f.args = append(f.args, n)
	return query + " LIMIT ?"
}
