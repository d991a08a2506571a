package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Table is a table of the schema.
type Table struct {
	Name    string
	Columns []Column
}

// Column is a column of a table.
type Column struct {
	Name string
	Type ColumnType
}

// ColumnType determines the Go type of the values of a column. NULL is nil.
type ColumnType string

// The column types in the migrations.
const (
	Text    ColumnType = "TEXT"    // string
	Number  ColumnType = "BIGINT"  // int64
	Boolean ColumnType = "BOOLEAN" // bool
	Bytes   ColumnType = "BYTEA"   // []byte
)

// transient lists the tables that are not backed up: the owner of the database, the replicas
// and what they hold, and the sessions and sign-ins, so that a restore opens no session that
// was ended since.
const transient = "'store_owner', 'replicas', 'partitions', 'sessions', 'sign_in_states'"

// Tables returns the tables of a version of the schema, each after the tables that it refers
// to, so that they can be filled in this order. It omits the tables that are not backed up: of
// the database's owner, replicas, sessions and sign-ins.
// The schema is read from an in-memory database on which the migrations were run. Other tables
// in a shared database are therefore not included. Invalid if this program does not know the
// version.
func Tables(ctx context.Context, version int64) (_ []Table, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "open a database in memory: %w", err)
	}
	db.SetMaxOpenConns(1) // each connection has its own database
	defer func() { err = errors.Join(err, db.Close()) }()
	d := sqliteDialect{path: ":memory:"}
	p, err := newProvider(d, db)
	if err != nil {
		return nil, err
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; version < 1 || version > newest {
		return nil, deploy.Errorf(deploy.Invalid, "schema %d is not known, this version of piped knows 1 to %d", version, newest)
	}
	s := &Store{dialect: d, writer: db, reader: db}
	defer s.stmts.close()
	if _, err := p.UpTo(ctx, version); err != nil {
		return nil, s.fail(err, "make the schema in memory")
	}
	tables, err := s.describe(ctx)
	return tables, s.fail(err, "describe the schema")
}

// describe returns the tables of a SQLite database.
func (s *Store) describe(ctx context.Context) ([]Table, error) {
	var tables []Table
	columns, err := all(ctx, s, scanColumn, `SELECT m.name, c.name, c.type FROM sqlite_master m JOIN pragma_table_info(m.name) c
WHERE m.type = 'table' AND m.name NOT IN ('sqlite_sequence', 'goose_db_version', `+transient+`) ORDER BY m.name, c.cid`)
	if err != nil {
		return nil, err
	}
	for _, c := range columns {
		if !slices.Contains([]ColumnType{Text, Number, Boolean, Bytes}, c.Type) {
			return nil, deploy.Errorf(deploy.Internal, "column %s of %s has the type %s, which a backup does not know", c.Name, c.table, c.Type)
		}
		if len(tables) == 0 || tables[len(tables)-1].Name != c.table {
			tables = append(tables, Table{Name: c.table})
		}
		last := &tables[len(tables)-1]
		last.Columns = append(last.Columns, c.Column)
	}
	references, err := all(ctx, s, scanReference, `SELECT m.name, f."table" FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table'`)
	if err != nil {
		return nil, err
	}
	return parentsFirst(tables, references)
}

type tableColumn struct {
	table string
	Column
}

func scanColumn(row scanner) (c tableColumn, err error) {
	return c, row.Scan(&c.table, &c.Name, &c.Type)
}

// reference is a foreign key: rows of table from refer to rows of table to.
type reference struct{ from, to string }

func scanReference(row scanner) (r reference, err error) { return r, row.Scan(&r.from, &r.to) }

// parentsFirst orders tables so that each comes after the tables that it refers to.
func parentsFirst(tables []Table, references []reference) (ordered []Table, err error) {
	for len(tables) > 0 {
		waits := func(t Table) bool { // t refers to a table that is not in ordered yet
			return slices.ContainsFunc(references, func(r reference) bool {
				return r.from == t.Name && slices.ContainsFunc(tables, func(other Table) bool { return other.Name == r.to })
			})
		}
		next := slices.IndexFunc(tables, func(t Table) bool { return !waits(t) })
		if next < 0 {
			return nil, deploy.Errorf(deploy.Internal, "table %s and others refer to one another or to themselves: they cannot be filled one after the other", tables[0].Name)
		}
		ordered = append(ordered, tables[next])
		tables = slices.Delete(tables, next, next+1)
	}
	return ordered, nil
}
