package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// restoreMark is a table that exists during a restore. It is created before anything else and
// dropped in the transaction that writes all rows. A database with this table contains nothing
// that could be lost.
const restoreMark = "unfinished_restore"

// Put stores a row of a table; the values are in the order of the table's columns. It retains
// the slice.
type Put func(t Table, row []any) error

// Restore fills the empty database that dsn names, which it creates if possible, and brings
// its schema up to date. It calls load once, with a database of the given schema version. load
// puts all rows, in the order of Tables. They are stored in one transaction when load returns
// nil.
//
// Before that no store can be opened on the database. An interrupted restore can be repeated.
// Exists if the database is not empty; then nothing has changed.
func Restore(ctx context.Context, dsn string, schema int64, load func(Put) error) (err error) {
	tables, err := Tables(ctx, schema)
	if err != nil {
		return err
	}
	d, err := dialectFor(dsn, false)
	if err != nil {
		return err
	}
	s := &Store{dialect: d, metrics: noMetrics{}}
	if s.writer, s.reader, err = d.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := newProvider(d, s.writer)
	if err != nil {
		return err
	}
	if _, _, err := p.GetVersions(ctx); err != nil { // also creates the table of versions
		return d.openError("read the schema version of", err)
	}
	if err := s.fail(s.beginRestore(ctx, schema), "begin to restore"); err != nil {
		return err
	}
	if _, err := p.UpTo(ctx, schema); err != nil {
		return s.fail(err, "make the schema of "+d.name())
	}
	if err := s.fail(s.fill(ctx, schema, tables, load), "restore the rows"); err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return s.fail(err, "migrate the schema of "+d.name())
}

// beginRestore marks an empty database as being restored. A database that is marked already
// may contain the schema.
func (s *Store) beginRestore(ctx context.Context, schema int64) error {
	sqlTx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer sqlTx.Rollback() //nolint:errcheck // does nothing after a commit
	if err := s.dialect.lockSchema(ctx, sqlTx); err != nil {
		return err
	}
	marked, err := hasTable(ctx, s.dialect, sqlTx, restoreMark)
	if err != nil {
		return err
	}
	current, err := schemaOf(ctx, sqlTx)
	if err != nil {
		return err
	}
	switch {
	case marked && current > schema:
		return deploy.Errorf(deploy.Exists, "a restore of %s did not come to its end, and it was of a newer backup (schema %d, this one has %d): "+
			"repeat it with that backup, or empty the database first", s.dialect.name(), current, schema)
	case marked:
		return nil
	case current > 0:
		return deploy.Errorf(deploy.Exists, "%s is not empty (schema %d), and a backup is restored into an empty one only: "+
			"point store.dsn at another one, or move away what is there", s.dialect.name(), current)
	}
	if _, err := sqlTx.ExecContext(ctx, "CREATE TABLE "+restoreMark+" (id BIGINT)"); err != nil {
		return err
	}
	return sqlTx.Commit()
}

// fill writes all rows and removes the mark, in one transaction.
func (s *Store) fill(ctx context.Context, schema int64, tables []Table, load func(Put) error) error {
	sqlTx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer sqlTx.Rollback() //nolint:errcheck // does nothing after a commit
	t := s.writeTx(sqlTx)
	if err := s.dialect.lockSchema(ctx, sqlTx); err != nil {
		return err
	}
	// This comes first, so that the second of two concurrent restores waits here and then
	// fails.
	if _, err := t.exec(ctx, "DROP TABLE "+restoreMark); err != nil {
		return err
	}
	if current, err := schemaOf(ctx, sqlTx); err != nil {
		return err
	} else if current != schema { // by another process that started at the same time
		return deploy.Errorf(deploy.Conflict, "%s was migrated to schema %d by another process: stop it, empty the database and repeat the restore", s.dialect.name(), current)
	}
	for _, table := range slices.Backward(tables) { // the backup contains rows of migrations, too
		if _, err := t.exec(ctx, "DELETE FROM "+table.Name); err != nil {
			return err
		}
	}
	f := &filler{tx: t}
	if err := load(func(table Table, row []any) error { return f.put(ctx, table, row) }); err != nil {
		return err
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(tables, func(t Table) bool { return t.Name == identityTable }) {
		if _, err := t.exec(ctx, "DELETE FROM "+identityTable); err != nil { // the result is another store
			return err
		}
	}
	return sqlTx.Commit()
}

// filler inserts many rows of a table with one statement.
type filler struct {
	tx    *tx
	table Table
	rows  [][]any
	size  int // bytes of the texts in the rows
}

// maxFill bounds the size of rows that are collected for an insert.
const maxFill = 1 << 20

func (f *filler) put(ctx context.Context, t Table, row []any) error {
	if t.Name != f.table.Name {
		if err := f.flush(ctx); err != nil {
			return err
		}
		f.table = t
	}
	f.rows = append(f.rows, row)
	for _, v := range row {
		switch v := v.(type) {
		case string:
			f.size += len(v)
		case []byte:
			f.size += len(v)
		}
	}
	if len(f.rows) < rowsPerInsert && f.size < maxFill {
		return nil
	}
	return f.flush(ctx)
}

func (f *filler) flush(ctx context.Context) error {
	rows := f.rows
	f.rows, f.size = nil, 0
	if err := f.tx.insert(ctx, f.table.Name, f.table.columns(), "", rows); err != nil {
		return f.tx.store.fail(err, "restore table "+f.table.Name)
	}
	return nil
}

// whole returns an error for a database whose restore is incomplete.
func whole(ctx context.Context, d dialect, db *sql.DB) error {
	marked, err := hasTable(ctx, d, db, restoreMark)
	if err != nil {
		return d.openError("check for an unfinished restore of", err)
	}
	if marked {
		return deploy.Errorf(deploy.Invalid, "%s is not whole: a restore of it goes on, or did not come to its end. Repeat it with piped restore, or empty the database", d.name())
	}
	return nil
}
