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

// position is the last row of a page in the order "updated last first, then by ID", or
// by another time. A cursor is its opaque form.
type position struct {
	UpdatedAt int64  `json:"u"`
	ID        string `json:"i"`
}

// cursorAt returns the cursor behind a row; at is the time that rows are ordered by.
func cursorAt(at time.Time, id string) string {
	b, _ := json.Marshal(position{toMilli(at), id}) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(cursor string) (position, error) {
	var p position
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, deploy.Errorf(deploy.Invalid, "the cursor is not one that a list returned: leave it empty to start from the first page")
	}
	return p, nil
}

// filter collects the conditions of a list query and their arguments.
type filter struct {
	conds []string
	args  []any
}

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

// sift is equal without the use of an index by SQLite: nearly all rows have the value, or
// other conditions leave few.
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

// labels adds a condition for every pair; owner is the column of table that names the row
// with the given ID column. Conditions with EXISTS would become a join in SQLite, with
// another order of rows.
func (f *filter) labels(table, owner, id string, labels map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		f.add("(SELECT l.value FROM "+table+" l WHERE l."+owner+" = "+id+" AND l.name = ?) = ?", name, labels[name])
	}
}

// after selects the rows behind a cursor, updated last first.
func (f *filter) after(cursor string) error { return f.afterBy("updated_at", cursor) }

// afterBy selects the rows behind a cursor in the order of a column, latest first.
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

// where returns the conditions as a clause, which may be empty.
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
