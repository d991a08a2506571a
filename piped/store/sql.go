package store

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
)

// querier runs read queries: on the read pool or in a transaction.
type querier interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// scanner is one row.
type scanner interface{ Scan(dest ...any) error }

// all returns every row of a query.
func all[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// one returns the first row of a query; ok is false if there is none.
func one[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) (v T, ok bool, err error) {
	vs, err := all(ctx, q, scan, query, args...)
	if err != nil || len(vs) == 0 {
		return v, false, err
	}
	return vs[0], true, nil
}

// scanText reads a row with one text column.
func scanText(row scanner) (v string, err error) { return v, row.Scan(&v) }

// query runs a query on the read pool.
func (s *Store) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	query = s.dialect.rewrite(query)
	cleanAll(args)
	if s.cached(args) {
		if st := s.stmts.prepared(ctx, s.reader, query); st != nil {
			return st.QueryContext(ctx, args...)
		}
	}
	return s.reader.QueryContext(ctx, query, args...)
}

// readTx runs queries in one transaction: all of them see the same state of the database.
type readTx struct {
	store  *Store
	db     *sql.DB // of the transaction
	sql    *sql.Tx
	missed []string // statements to prepare once the connection is free
}

// readTogether runs fn in one read transaction, for values that several queries make up:
// without it, a concurrent write could change one part after the other was read.
func (s *Store) readTogether(ctx context.Context, fn func(querier) error) error {
	sqlTx, err := s.reader.BeginTx(ctx, s.dialect.snapshot())
	if err != nil {
		return err
	}
	t := &readTx{store: s, db: s.reader, sql: sqlTx}
	err = fn(t)
	_ = sqlTx.Rollback() // nothing was written
	t.prepareMissed(ctx)
	return err
}

func (t *readTx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	query = t.store.dialect.rewrite(query)
	cleanAll(args)
	if st := t.stmt(query, args); st != nil {
		return t.sql.StmtContext(ctx, st).QueryContext(ctx, args...)
	}
	return t.sql.QueryContext(ctx, query, args...)
}

// stmt returns the cached prepared statement of a query. If there is none it returns nil and
// records the query for prepareMissed: preparing takes another connection, and SQLite has only
// one writer connection, which this transaction may use.
func (t *readTx) stmt(query string, args []any) *sql.Stmt {
	if !t.store.cached(args) {
		return nil
	}
	st := t.store.stmts.get(t.db, query)
	if st == nil {
		t.missed = append(t.missed, query)
	}
	return st
}

// prepareMissed prepares the statements that t had to run unprepared. It is called after the
// end of the transaction.
func (t *readTx) prepareMissed(ctx context.Context) {
	for _, query := range t.missed {
		t.store.stmts.prepared(ctx, t.db, query)
	}
}

// tx is a write transaction. At the commit its events are numbered and its changes are
// published.
type tx struct {
	readTx
	changes []deploy.Change
	events  []deploy.Event
	fences  []fence // proved before the commit
	shared  bool    // with other writers, so that a cancelled context must not end it
}

// maxAttempts bounds the attempts of a transaction that the database aborts because of others
// (PostgreSQL's deadlock detection).
const maxAttempts = 5

// write runs fn in one transaction: all of its writes are stored and published, or none.
// The locking order is application, deployment, command, outbox.
func (s *Store) write(ctx context.Context, fn func(*tx) error) error {
	began := time.Now() // measured with the system clock, not with Options.Now
	defer func() { s.metrics.Wrote(time.Since(began)) }()
	if s.hold != nil {
		if err := s.hold.check(); err != nil {
			return err
		}
	}
	if s.dialect.oneWriter() {
		return s.group.write(ctx, s, fn)
	}
	for attempt := 1; ; attempt++ {
		err := s.writeOnce(ctx, fn)
		if err == nil || attempt == maxAttempts || !s.dialect.retryable(err) {
			return err
		}
	}
}

// writeOnce runs fn in one transaction and commits it, without a retry.
func (s *Store) writeOnce(ctx context.Context, fn func(*tx) error) error {
	fences := s.fences(ctx) // before the transaction begins
	sqlTx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer sqlTx.Rollback() //nolint:errcheck // does nothing after a commit
	t := s.writeTx(sqlTx)
	t.fences = fences
	if err := fn(t); err != nil {
		return err
	}
	if err := flushEvents(ctx, t); err != nil {
		return err
	}
	if err := s.dialect.seal(ctx, t); err != nil {
		return err
	}
	if err := sqlTx.Commit(); err != nil {
		return err
	}
	s.metrics.Committed(1)
	s.feed.publish(t.changes)
	t.prepareMissed(ctx)
	return nil
}

// writeTx returns the write transaction that sqlTx is.
func (s *Store) writeTx(sqlTx *sql.Tx) *tx {
	return &tx{readTx: readTx{store: s, db: s.writer, sql: sqlTx}}
}

// during returns the context for a statement of t. That of a shared transaction is not
// cancelled.
func (t *tx) during(ctx context.Context) context.Context {
	if t.shared {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// changed records a change to publish at the commit.
func (t *tx) changed(topic deploy.Topic, id, applicationID string) {
	t.changes = append(t.changes, deploy.Change{Topic: topic, ID: id, ApplicationID: applicationID})
}

func (t *tx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.readTx.query(t.during(ctx), query, args...)
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	ctx = t.during(ctx)
	query = t.store.dialect.rewrite(query)
	cleanAll(args)
	var res sql.Result
	var err error
	if st := t.stmt(query, args); st != nil {
		res, err = t.sql.StmtContext(ctx, st).ExecContext(ctx, args...)
	} else {
		res, err = t.sql.ExecContext(ctx, query, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// rowsPerInsert bounds the rows of one statement: few enough for the engines' limits on
// parameters, and enough to save most round trips.
const rowsPerInsert = 50

// insert adds rows to a table. suffix is the end of the statement, such as an ON CONFLICT
// clause.
func (t *tx) insert(ctx context.Context, table, columns, suffix string, rows [][]any) error {
	for len(rows) > 0 {
		chunk := rows[:min(len(rows), rowsPerInsert)]
		rows = rows[len(chunk):]
		row := "(" + placeholders(len(chunk[0])) + ")"
		query := "INSERT INTO " + table + " (" + columns + ") VALUES " +
			strings.TrimSuffix(strings.Repeat(row+", ", len(chunk)), ", ") + " " + suffix
		args := make([]any, 0, len(chunk)*len(chunk[0]))
		for _, r := range chunk {
			args = append(args, r...)
		}
		if _, err := t.exec(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// placeholders returns "?, ?, …", n of them.
func placeholders(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// anys converts a list of texts to arguments of a statement.
func anys[S ~string](list []S) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// clean replaces the characters in texts that PostgreSQL rejects (NUL bytes, invalid UTF-8),
// on both engines.
func clean(text string) string {
	if utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cleanAll cleans all texts among the arguments of a statement, also those of conditions.
func cleanAll(args []any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = clean(text)
		}
	}
}

// statements caches prepared statements: SQLite would parse each query again.
type statements struct {
	mu sync.Mutex
	m  map[stmtKey]*sql.Stmt
}

type stmtKey struct {
	db    *sql.DB
	query string
}

// Queries that are built from filters and lists have many variants. Those with many arguments
// are not cached, and new ones are not cached when the cache is full.
const (
	maxStatements = 300
	maxCachedArgs = 32
)

// cached reports whether a query with these arguments uses the cache.
func (s *Store) cached(args []any) bool {
	return len(args) <= maxCachedArgs && s.dialect.cacheStatements()
}

// get returns the cached statement of query, or nil.
func (c *statements) get(db *sql.DB, query string) *sql.Stmt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[stmtKey{db, query}]
}

// prepared returns the statement of query and prepares it if necessary. It returns nil if the
// cache is full or preparing fails; the query is then run unprepared and returns its own
// error.
func (c *statements) prepared(ctx context.Context, db *sql.DB, query string) *sql.Stmt {
	c.mu.Lock()
	st, full := c.m[stmtKey{db, query}], len(c.m) >= maxStatements
	c.mu.Unlock()
	if st != nil || full {
		return st
	}
	st, err := db.PrepareContext(ctx, query)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.m[stmtKey{db, query}]; other != nil {
		_ = st.Close() // a concurrent caller was first
		return other
	}
	if c.m == nil {
		c.m = map[stmtKey]*sql.Stmt{}
	}
	c.m[stmtKey{db, query}] = st
	return st
}

// close clears the cache. Closing the database closes the statements.
func (c *statements) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.m {
		_ = st.Close()
	}
	c.m = nil
}
