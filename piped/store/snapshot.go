package store

import (
	"context"
	"database/sql"
	"iter"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Snapshot is the content of a store at one point in time.
type Snapshot struct {
	Schema int64   // the version of the schema
	Tables []Table // each after the tables that it refers to

	store *Store
	tx    *sql.Tx
}

// Snapshot calls fn with a consistent snapshot of all rows; concurrent writes continue. The
// snapshot must not be used after fn. Conflict if another version of piped has migrated the
// schema since the store was opened.
func (s *Store) Snapshot(ctx context.Context, fn func(Snapshot) error) error {
	tables, err := Tables(ctx, s.schema)
	if err != nil {
		return err
	}
	sqlTx, err := s.reader.BeginTx(ctx, s.dialect.snapshot())
	if err != nil {
		return s.fail(err, "begin to read everything")
	}
	defer sqlTx.Rollback()                           //nolint:errcheck // nothing was written
	if err := s.sameSchema(ctx, sqlTx); err != nil { // the first read determines the point in time
		return err
	}
	if err := fn(Snapshot{Schema: s.schema, Tables: tables, store: s, tx: sqlTx}); err != nil {
		return err
	}
	// On PostgreSQL a table that was recreated in the meantime is empty in the snapshot.
	return s.sameSchema(ctx, s.reader)
}

// sameSchema returns an error if another version of piped has migrated the database since the
// store was opened.
func (s *Store) sameSchema(ctx context.Context, q rowQuerier) error {
	schema, err := schemaOf(ctx, q)
	if err != nil {
		return s.fail(err, "read the schema version")
	}
	if schema != s.schema {
		return deploy.Errorf(deploy.Conflict, "%s was migrated from schema %d to %d meanwhile: try again with the version of piped that did it", s.dialect.name(), s.schema, schema)
	}
	return nil
}

// Rows iterates over the rows of a table, in no particular order. A row is valid until the
// next one is read.
func (n Snapshot) Rows(ctx context.Context, t Table) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		failed := func(err error) { yield(nil, n.store.fail(err, "read table "+t.Name)) }
		rows, err := n.tx.QueryContext(ctx, "SELECT "+t.columns()+" FROM "+t.Name)
		if err != nil {
			failed(err)
			return
		}
		defer rows.Close() //nolint:errcheck // rows.Err reports what matters
		row, into := make([]any, len(t.Columns)), make([]any, len(t.Columns))
		for i := range row {
			into[i] = &row[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				failed(err)
				return
			}
			for i, c := range t.Columns {
				row[i] = c.value(row[i])
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			failed(err)
		}
	}
}

// value returns the value of a column independent of the engine: SQLite returns numbers for
// booleans and nil for empty bytes.
func (c Column) value(v any) any {
	switch v := v.(type) {
	case int64:
		if c.Type == Boolean {
			return v != 0
		}
	case []byte:
		if v == nil {
			return []byte{}
		}
	}
	return v
}

// columns returns the names of the columns as a list for a statement.
func (t Table) columns() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}
