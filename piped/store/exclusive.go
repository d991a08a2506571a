package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/c785c783/piped/piped/deploy"
)

// hold is the exclusive right of one agent to use a database.
type hold interface {
	// claim makes this agent the owner. The schema must be up to date.
	claim(ctx context.Context) error
	// token returns the fencing token that the database contains while this agent is the
	// owner; "" if the right cannot be lost.
	token() string
	// check returns an error if the right is known to be lost.
	check() error
	// watch returns nil when ctx ends, and an error if another agent has acquired the right.
	watch(ctx context.Context) error
	release() error
}

// holdPatience is how long a starting agent waits for the right: the server may not have
// noticed yet that the previous agent has ended.
const holdPatience = 5 * time.Second

// acquire acquires the right and waits up to holdPatience for it.
func acquire(ctx context.Context, d dialect, s *Store) (hold, error) {
	for end := time.Now().Add(holdPatience); ; {
		h, err := d.hold(ctx, s)
		if err == nil || !deploy.IsKind(err, deploy.Conflict) || time.Now().After(end) {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// inUse returns the error for a database that another agent, holder, uses.
func inUse(d dialect, holder string) error {
	return deploy.Errorf(deploy.Conflict, "%s is in use by another agent (%s): one agent works with a database; stop that one, or give this agent a store.dsn of its own", d.name(), holder)
}

// self describes this process to other agents.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%.40s pid %d", host, os.Getpid())
}

// fileHold is a lock on a file next to a SQLite database. It cannot be lost.
type fileHold struct{ file *os.File }

func (d sqliteDialect) hold(_ context.Context, s *Store) (hold, error) {
	file, err := os.OpenFile(d.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "open the lock of %s: %w", d.name(), err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(file) // best effort: only the lock matters
		return nil, errors.Join(inUse(d, string(holder)), file.Close())
	}
	holder := fmt.Sprintf("%s, since %s", self(), s.now().Format(time.RFC3339))
	_, err = file.WriteAt([]byte(holder), 0)
	if err := errors.Join(file.Truncate(int64(len(holder))), err); err != nil {
		return nil, errors.Join(deploy.Errorf(deploy.Unavailable, "write the lock of %s: %w", d.name(), err), file.Close())
	}
	return fileHold{file}, nil
}

func (fileHold) claim(context.Context) error { return nil }

func (fileHold) token() string { return "" }

func (fileHold) check() error { return nil }

func (fileHold) watch(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (h fileHold) release() error { return h.file.Close() }

// sessionHold is an advisory lock of a separate connection. The server releases the lock when
// the connection ends, which this agent may notice only seconds later. Until then its
// transactions fail because the next agent has changed the fencing token.
type sessionHold struct {
	dialect postgresDialect
	store   *Store
	conn    *pgx.Conn // owned by watch once it runs
	lost    atomic.Bool
	owner   atomic.Pointer[string] // the token; nil before claim
}

const (
	holdEvery   = 2 * time.Second // between two checks of the connection
	holdTimeout = 5 * time.Second // of one check, and of one attempt to reconnect

	// claimTimeout is longer than the time in which the server ends the connections of an
	// unreachable machine.
	claimTimeout = time.Minute

	// holdClass is the first key of the lock; the second is derived from the schema.
	holdClass = 0x70697064
)

func (d postgresDialect) hold(ctx context.Context, s *Store) (hold, error) {
	h := &sessionHold{dialect: d, store: s}
	return h, h.connect(ctx)
}

// connect acquires the lock on a new connection. Conflict if another agent has it.
func (h *sessionHold) connect(ctx context.Context) (err error) {
	config := h.dialect.config.Copy()
	config.RuntimeParams["application_name"] = "piped agent " + self()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return h.dialect.openError("connect to", err)
	}
	var taken bool
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext(current_schema()))", holdClass).Scan(&taken)
	if err == nil && !taken {
		err = inUse(h.dialect, lockHolder(ctx, conn))
	}
	if err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	h.conn = conn
	return nil
}

// claim stores a new token over the connection that has the lock. It waits for transactions of
// the previous agent that have locked their token.
func (h *sessionHold) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	token := uuid.NewString()
	_, err := h.conn.Exec(ctx, "INSERT INTO store_owner (position, token) VALUES (1, $1) ON CONFLICT (position) DO UPDATE SET token = excluded.token", token)
	if err != nil {
		return fmt.Errorf("become the owner of %s: %w", h.dialect.name(), err)
	}
	h.owner.Store(&token)
	return nil
}

func (h *sessionHold) token() string {
	if token := h.owner.Load(); token != nil {
		return *token
	}
	return ""
}

// Owned returns an error unless this agent owns the database now. It returns nil if ownership
// cannot be lost or the store was not opened exclusively.
func (s *Store) Owned(ctx context.Context) error {
	if s.hold == nil || s.hold.token() == "" {
		return nil
	}
	if err := s.hold.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	_, owned, err := one(ctx, s, scanNumber, "SELECT 1 FROM store_owner WHERE token = ?", s.hold.token())
	if err == nil && !owned {
		return outdated(s.dialect)
	}
	return s.fail(err, "check that the database is this agent's")
}

// lockHolder describes the agent that has the lock.
func lockHolder(ctx context.Context, conn *pgx.Conn) string {
	var name string
	var since time.Time
	err := conn.QueryRow(ctx, `SELECT COALESCE(NULLIF(a.application_name, ''), 'a user whose name this one may not see'), a.backend_start
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = $1
		AND l.objid::bigint = (hashtext(current_schema())::bigint & 4294967295) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		int64(holdClass)).Scan(&name, &since)
	if err != nil {
		return "it is not known which"
	}
	return fmt.Sprintf("%s, since %s", name, since.UTC().Format(time.RFC3339))
}

func (h *sessionHold) check() error {
	if h.lost.Load() {
		return deploy.Errorf(deploy.Unavailable, "write to %s: the connection that keeps other agents out is lost, and is being made again", h.dialect.name())
	}
	return nil
}

// watch checks the connection periodically. While the connection is lost, writes fail. watch
// returns an error if another agent has acquired the lock in the meantime.
func (h *sessionHold) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := h.ping(ctx); err != nil && ctx.Err() == nil {
			h.lost.Store(true)
			h.store.log.Warn("lost the connection that keeps other agents out of the database, connecting again", "error", err)
			if err := h.regain(ctx); err != nil {
				return err
			}
			continue
		}
		pause(ctx, holdEvery)
	}
	return nil
}

func (h *sessionHold) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	return h.conn.Ping(ctx)
}

// regain acquires the lock on a new connection and retries while the server is unreachable.
func (h *sessionHold) regain(ctx context.Context) error {
	_ = h.release() // the connection is replaced either way
	for ctx.Err() == nil {
		err := h.reconnect(ctx)
		switch {
		case err == nil:
			h.lost.Store(false)
			h.store.log.Info("has the database for itself again")
			return nil
		case deploy.IsKind(err, deploy.Conflict):
			return fmt.Errorf("this agent lost its connection to the database and stops: %w", err)
		}
		pause(ctx, listenBackoff)
	}
	return nil
}

func (h *sessionHold) reconnect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	if err := h.connect(limited); err != nil {
		return err
	}
	if err := h.claim(ctx); err != nil {
		return errors.Join(err, h.release())
	}
	return nil
}

func (h *sessionHold) release() error {
	if h.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return h.conn.Close(ctx)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
