package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect contains all differences between the two engines.
type dialect interface {
	engine() string // sqlite or postgres
	name() string   // the database in words, without credentials
	open(ctx context.Context) (writer, reader *sql.DB, err error)
	openError(op string, err error) error
	// hold acquires the exclusive right to use the database. Conflict if another agent has it,
	// unless it is a replica and standby is given.
	hold(ctx context.Context, s *Store, standby Standby) (hold, error)

	goose() goose.Dialect
	migrationOptions() ([]goose.ProviderOption, error)
	// lockSchema prevents concurrent migrations until the transaction ends.
	lockSchema(ctx context.Context, t *sql.Tx) error
	// countTables returns a query for the number of tables with a name.
	countTables() string
	// snapshot returns the options of a transaction with a consistent snapshot.
	snapshot() *sql.TxOptions

	// rewrite replaces `?` placeholders by the engine's. Queries contain no other question
	// mark.
	rewrite(query string) string
	// forUpdate returns the end of a SELECT that locks the rows it reads until the transaction
	// ends.
	forUpdate() string
	// forShare is forUpdate for readers, which do not exclude one another.
	forShare() string
	// skipLocked is forUpdate for any change; it skips rows that another transaction has locked.
	skipLocked() string
	// clock returns the expression for the time of the database's clock in milliseconds. In one
	// transaction it does not change.
	clock() string
	// wildcard returns the condition that a column matches a pattern in which * stands for any
	// text, and the condition's argument. Upper and lower case differ.
	wildcard(column, pattern string) (cond, arg string)
	// oneWriter reports whether concurrent writers share one connection.
	oneWriter() bool
	// cacheStatements reports whether the store caches prepared statements.
	cacheStatements() bool

	unique(err error) bool      // a unique constraint was violated
	foreign(err error) bool     // a foreign key was violated
	retryable(err error) bool   // the same transaction may succeed if repeated at once
	unavailable(err error) bool // the transaction may succeed later

	// size returns the size of the database in bytes.
	size(ctx context.Context, s *Store) (int64, error)

	// seal is t's last statement. It fails unless this agent still owns the database, and
	// makes the commit notify other processes of t's changes. listen publishes such
	// notifications to s until ctx ends.
	seal(ctx context.Context, t *tx) error
	listen(ctx context.Context, s *Store) error
}

// dialectFor returns the dialect of a DSN, for an agent or a command. The error does not contain
// the DSN.
func dialectFor(dsn string, agent bool) (dialect, error) {
	scheme, rest, found := strings.Cut(dsn, "://")
	switch {
	case !found:
		return nil, deploy.Errorf(deploy.Invalid, "store.dsn has no scheme: write sqlite://<path> or postgres://<user>@<host>/<database>")
	case scheme == "sqlite" && (rest == "" || rest == ":memory:"):
		return nil, deploy.Errorf(deploy.Invalid, "store.dsn names no file: write sqlite://<path>")
	case scheme == "sqlite":
		return sqliteDialect{path: rest}, nil
	case scheme == "postgres" || scheme == "postgresql":
		config, err := pgx.ParseConfig(dsn)
		if err != nil { // the error contains the DSN, which may contain a password
			return nil, deploy.Errorf(deploy.Invalid, "store.dsn cannot be read: write postgres://<user>:<password>@<host>:<port>/<database>, special characters of the password percent-encoded")
		}
		// Make the server close the connections of an unreachable machine within half a
		// minute, and with them the locks that block the next agent.
		for name, value := range map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"} {
			config.RuntimeParams[name] = value
		}
		if agent { // a stopped process must not keep the rows that the next agent needs
			config.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(holdExpiry.Milliseconds(), 10)
		}
		return postgresDialect{config: config}, nil
	default:
		return nil, deploy.Errorf(deploy.Invalid, "store.dsn has the unknown scheme %q: write sqlite://<path> or postgres://<user>@<host>/<database>", scheme)
	}
}

// sqliteDialect is a SQLite file with one writer connection and a few readers.
type sqliteDialect struct{ path string }

// Sizes that limit the memory of an idle agent: a page cache of 4 MiB for the writer and 1 MiB
// for each reader.
const (
	sqliteReaders     = 4
	sqliteWriterCache = "-4000"
	sqliteReaderCache = "-1000"
	sqliteBusyTimeout = "10000"
)

func (sqliteDialect) engine() string { return "sqlite" }
func (d sqliteDialect) name() string { return "the database file " + d.path }

func (d sqliteDialect) open(ctx context.Context) (writer, reader *sql.DB, err error) {
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return nil, nil, deploy.Errorf(deploy.Invalid, "create the directory of the database file: %w", err)
	}
	// SQLite creates its other files with the mode of the database file.
	f, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, deploy.Errorf(deploy.Invalid, "open the database file: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, nil, deploy.Errorf(deploy.Invalid, "open the database file: %w", err)
	}
	writer, err = sql.Open("sqlite", d.url(url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(" + sqliteBusyTimeout + ")", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		"cache_size(" + sqliteWriterCache + ")", "journal_size_limit(16777216)"}}))
	if err != nil {
		return nil, nil, d.openError("open", err)
	}
	writer.SetMaxOpenConns(1)
	if err := d.check(ctx, writer); err != nil {
		return nil, nil, errors.Join(err, writer.Close())
	}
	reader, err = sql.Open("sqlite", d.url(url.Values{"_pragma": {
		"busy_timeout(" + sqliteBusyTimeout + ")", "query_only(1)", "cache_size(" + sqliteReaderCache + ")"}}))
	if err != nil {
		return nil, nil, errors.Join(d.openError("open", err), writer.Close())
	}
	reader.SetMaxOpenConns(sqliteReaders)
	reader.SetMaxIdleConns(sqliteReaders)
	return writer, reader, nil
}

func (d sqliteDialect) url(params url.Values) string {
	return "file:" + (&url.URL{Path: d.path}).EscapedPath() + "?" + params.Encode()
}

// check reads the whole file once, so that a damaged page is found now and not during a
// deployment.
func (d sqliteDialect) check(ctx context.Context, db *sql.DB) error {
	var result string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&result); err != nil {
		return d.openError("open", err)
	}
	if result != "ok" {
		return d.damaged(errors.New(result))
	}
	return nil
}

func (d sqliteDialect) openError(op string, err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && (se.Code()&0xff == sqlite3.SQLITE_NOTADB || se.Code()&0xff == sqlite3.SQLITE_CORRUPT) {
		return d.damaged(err)
	}
	kind := deploy.Internal
	if d.unavailable(err) {
		kind = deploy.Unavailable
	}
	return deploy.Errorf(kind, "%s %s: %w", op, d.name(), err)
}

// damaged returns an error for a damaged file that describes how to restore it.
func (d sqliteDialect) damaged(err error) error {
	return deploy.Errorf(deploy.Invalid, "the database file %[1]s is damaged or no SQLite database, and is left as it is (%[2]w). "+
		"Stop piped and copy %[1]s, %[1]s-wal and %[1]s-shm somewhere safe; then save what is readable with "+
		"`sqlite3 %[1]s .recover | sqlite3 recovered.db`, or move the three files away and bring back a backup with `piped restore`, "+
		"or move them away to start with an empty database: applications are found again in Git, the history is lost", d.path, err)
}

func (sqliteDialect) goose() goose.Dialect                              { return goose.DialectSQLite3 }
func (sqliteDialect) migrationOptions() ([]goose.ProviderOption, error) { return nil, nil }
func (sqliteDialect) lockSchema(context.Context, *sql.Tx) error         { return nil } // the writer is alone
func (sqliteDialect) countTables() string {
	return "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
}
func (sqliteDialect) snapshot() *sql.TxOptions    { return &sql.TxOptions{ReadOnly: true} }
func (sqliteDialect) rewrite(query string) string { return query }
func (sqliteDialect) forUpdate() string           { return "" } // the writer is alone
func (sqliteDialect) forShare() string            { return "" }
func (sqliteDialect) skipLocked() string          { return "" }
func (sqliteDialect) clock() string               { return "CAST(unixepoch('subsec') * 1000 AS INTEGER)" }
func (sqliteDialect) oneWriter() bool             { return true }
func (sqliteDialect) cacheStatements() bool       { return true }
func (sqliteDialect) wildcard(column, pattern string) (cond, arg string) {
	return column + " GLOB ?", strings.NewReplacer("?", "[?]", "[", "[[]").Replace(pattern)
}
func (sqliteDialect) unique(err error) bool {
	return sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_UNIQUE || sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}
func (sqliteDialect) foreign(err error) bool {
	return sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}
func (sqliteDialect) retryable(error) bool { return false }

func (sqliteDialect) unavailable(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return true
	}
	return false
}

// size returns the size of the database file and of its WAL.
func (d sqliteDialect) size(context.Context, *Store) (int64, error) {
	var total int64
	for _, path := range []string{d.path, d.path + "-wal"} {
		info, err := os.Stat(path)
		if err == nil {
			total += info.Size()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return total, nil
}

// seal only proves the fences. Other processes with the same file are short commands; the
// periodic scans find their changes.
func (sqliteDialect) seal(ctx context.Context, t *tx) error {
	for _, f := range t.fences {
		if err := f.prove(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (sqliteDialect) listen(ctx context.Context, _ *Store) error {
	<-ctx.Done()
	return nil
}

func sqliteCode(err error) int {
	var se *sqlite.Error
	if errors.As(err, &se) {
		return se.Code()
	}
	return 0
}

// postgresDialect is a PostgreSQL server that several processes may share.
type postgresDialect struct{ config *pgx.ConnConfig }

const (
	postgresConns     = 10
	postgresIdleConns = 4
	postgresIdleTime  = 5 * time.Minute

	// postgresChannel is the channel of notifications.
	postgresChannel = "piped_changes"
	// maxPayload bounds the payload of a notification; PostgreSQL's limit is 8000 bytes.
	maxPayload = 7000
)

func (postgresDialect) engine() string { return "postgres" }
func (d postgresDialect) name() string {
	return fmt.Sprintf("the database %s on %s:%d", d.config.Database, d.config.Host, d.config.Port)
}

func (d postgresDialect) open(ctx context.Context) (writer, reader *sql.DB, err error) {
	db := stdlib.OpenDB(*d.config)
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresIdleConns)
	db.SetConnMaxIdleTime(postgresIdleTime)
	if err := db.PingContext(ctx); err != nil {
		return nil, nil, errors.Join(d.openError("connect to", err), db.Close())
	}
	return db, db, nil
}

func (d postgresDialect) openError(op string, err error) error {
	return deploy.Errorf(deploy.Unavailable, "%s %s: %w: check store.dsn and that the server runs and lets this user in", op, d.name(), err)
}

func (postgresDialect) goose() goose.Dialect { return goose.DialectPostgres }

// migrationOptions lets one of several starting processes migrate while the others wait.
func (postgresDialect) migrationOptions() ([]goose.ProviderOption, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	return []goose.ProviderOption{goose.WithSessionLocker(locker)}, nil
}

func (d postgresDialect) lockSchema(ctx context.Context, t *sql.Tx) error {
	_, err := t.ExecContext(ctx, d.rewrite("SELECT pg_advisory_xact_lock(?)"), lock.DefaultLockID) // the lock of migrationOptions
	return err
}

func (postgresDialect) countTables() string {
	return "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?"
}

func (postgresDialect) snapshot() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}

func (postgresDialect) rewrite(query string) string {
	var b strings.Builder
	b.Grow(len(query) + 16)
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}

// forUpdate permits concurrent inserts that refer to the locked rows.
func (postgresDialect) forUpdate() string     { return " FOR NO KEY UPDATE" }
func (postgresDialect) forShare() string      { return " FOR SHARE" }
func (postgresDialect) skipLocked() string    { return " FOR UPDATE SKIP LOCKED" }
func (postgresDialect) clock() string         { return "(extract(epoch FROM now()) * 1000)::bigint" }
func (postgresDialect) oneWriter() bool       { return false }
func (postgresDialect) cacheStatements() bool { return false } // pgx caches them per connection

func (postgresDialect) wildcard(column, pattern string) (cond, arg string) {
	return column + ` LIKE ? ESCAPE '\'`, strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%").Replace(pattern)
}

func (postgresDialect) unique(err error) bool  { return postgresCode(err) == "23505" }
func (postgresDialect) foreign(err error) bool { return postgresCode(err) == "23503" }
func (postgresDialect) retryable(err error) bool {
	code := postgresCode(err)
	return code == "40001" || code == "40P01" // serialisation failure, deadlock
}

// unavailable reports whether the server is unreachable, out of resources, or stopping.
func (postgresDialect) unavailable(err error) bool {
	code := postgresCode(err)
	if code == "" {
		var ne net.Error
		return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
	}
	switch code[:2] {
	case "08", "53", "57", "58":
		return true
	}
	return code == "25P03" // idle_in_transaction_session_timeout
}

func postgresCode(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

func (postgresDialect) size(ctx context.Context, s *Store) (int64, error) {
	n, _, err := one(ctx, s, scanNumber, "SELECT pg_database_size(current_database())")
	return n, err
}

// notification is the payload of one NOTIFY.
type notification struct {
	From    string          `json:"f"`
	Changes []deploy.Change `json:"c"`
}

// seal proves the fences of t and sends its notifications. It runs last, so that the rows of
// the fences are locked only briefly.
func (d postgresDialect) seal(ctx context.Context, t *tx) error {
	fences, changes := t.fences, t.changes
	for len(changes) > 0 {
		n, size := 1, changeSize(changes[0])
		for n < len(changes) && size+changeSize(changes[n]) <= maxPayload {
			size += changeSize(changes[n])
			n++
		}
		payload, err := json.Marshal(notification{t.store.id, changes[:n]})
		if err != nil {
			return err
		}
		var with fence // one that is proved by the same statement, which saves a round trip
		if len(fences) > 0 {
			with, fences = fences[0], fences[1:]
		}
		if err := d.notify(ctx, t, string(payload), with); err != nil {
			return err
		}
		changes = changes[n:]
	}
	for _, f := range fences {
		if err := f.prove(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// notify sends a notification, if the fence with holds. The zero fence always does.
func (d postgresDialect) notify(ctx context.Context, t *tx, payload string, with fence) error {
	query := "SELECT pg_notify('" + postgresChannel + "', ?)"
	if with.from != "" {
		query += with.from + d.forShare()
	}
	sent, err := t.exec(ctx, query, append([]any{payload}, with.args...)...)
	if err == nil && sent == 0 {
		err = with.err
	}
	return err
}

// changeSize returns an upper bound for the length of a change in JSON.
func changeSize(c deploy.Change) int {
	return len(c.Topic) + len(c.ID) + len(c.ApplicationID) + 64
}

func (d postgresDialect) listen(ctx context.Context, s *Store) error {
	return (&listener{store: s, config: d.config}).run(ctx)
}
