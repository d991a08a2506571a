package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	// bar ends the right of the previous agent to write.
	bar(ctx context.Context) error
	// token returns the fencing token that the database contains while this agent is the
	// owner; "" if the right cannot be lost.
	token() string
	// check returns an error if the right is known to be lost.
	check() error
	// advertise tells standbys where this agent listens.
	advertise(ctx context.Context, api, web string) error
	// standbys returns the processes that stand by.
	standbys(ctx context.Context) ([]string, error)
	// watch returns nil when ctx ends, and an error if another agent has acquired the right.
	watch(ctx context.Context) error
	release() error
}

// holdPatience is how long a starting agent waits for the right: the server may not have
// noticed yet that the previous agent has ended.
const holdPatience = 5 * time.Second

// acquire acquires the right and waits up to holdPatience for it, and as a standby as long as it
// takes.
func acquire(ctx context.Context, d dialect, s *Store, standby Standby) (hold, error) {
	for end := time.Now().Add(holdPatience); ; {
		h, err := d.hold(ctx, s, standby)
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

// Process describes this process to other agents.
func Process() string { return self() }

// self describes this process to other agents.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%.40s pid %d", host, os.Getpid())
}

// agentName is the name of the connection of this agent while it has a PostgreSQL database.
func agentName() string { return agentNameOf(self()) }

// agentNameOf is agentName for a process that self describes. The server cuts longer names.
func agentNameOf(process string) string {
	name := "piped agent " + process
	return name[:min(len(name), 63)]
}

// fileHold is a lock on a file next to a SQLite database. It cannot be lost.
type fileHold struct{ file *os.File }

func (d sqliteDialect) hold(_ context.Context, s *Store, _ Standby) (hold, error) {
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

func (fileHold) bar(context.Context) error { return nil }

func (fileHold) token() string { return "" }

func (fileHold) check() error { return nil }

func (fileHold) standbys(context.Context) ([]string, error) { return nil, nil }

func (fileHold) advertise(context.Context, string, string) error { return nil }

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

	tried   string                    // the token of a reclaim whose answer was lost; "" for none
	early   bool                      // the server is of a version before 14, and ends no idle connections
	local   atomic.Pointer[string]    // the IP address of this end of the connection
	listens atomic.Pointer[addresses] // nil before advertise
}

const (
	holdEvery   = 2 * time.Second // between two checks of the connection
	holdTimeout = 5 * time.Second // of one check, and of one attempt to reconnect

	// holdExpiry is how long after its last check an agent that does not answer loses the
	// database.
	holdExpiry = 15 * time.Second

	// claimTimeout is longer than the time in which the server ends the connections of an
	// unreachable machine.
	claimTimeout = time.Minute

	// holdClass is the first key of the lock; the second is derived from the schema.
	holdClass = 0x70697064
)

func (d postgresDialect) hold(ctx context.Context, s *Store, standby Standby) (hold, error) {
	h := &sessionHold{dialect: d, store: s}
	if err := h.dial(ctx); err != nil {
		return h, err
	}
	err := h.lock(ctx)
	if deploy.IsKind(err, deploy.Conflict) && standby != nil {
		err = h.standBy(ctx, standby)
	}
	if err != nil {
		err = errors.Join(err, h.release())
	}
	return h, err
}

func (h *sessionHold) dial(ctx context.Context) error {
	config := h.dialect.config.Copy()
	config.RuntimeParams["application_name"] = agentName()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return h.dialect.openError("connect to", err)
	}
	h.conn = conn
	local := "127.0.0.1" // of a socket in the file system
	if tcp, ok := conn.PgConn().Conn().LocalAddr().(*net.TCPAddr); ok {
		local = tcp.IP.String()
	}
	h.local.Store(&local)
	return nil
}

// lock acquires the lock on the connection. Conflict if another agent has it.
func (h *sessionHold) lock(ctx context.Context) error {
	var taken bool
	err := h.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext(current_schema()))", holdClass).Scan(&taken)
	if err == nil && !taken {
		err = inUse(h.dialect, lockHolder(ctx, h.conn))
	}
	return err
}

// bar ends the right of the previous agent before the schema is migrated, under which its
// transactions could do harm. It waits for those that have locked their token.
func (h *sessionHold) bar(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	_, err := h.conn.Exec(ctx, "UPDATE store_owner SET token = $1", uuid.NewString())
	if err != nil && postgresCode(err) != undefinedTable {
		return fmt.Errorf("become the owner of %s: %w", h.dialect.name(), err)
	}
	return nil
}

// claim stores a new token over the connection that has the lock, and who this agent is.
func (h *sessionHold) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	var key string
	err := h.conn.QueryRow(ctx, "SELECT key_fingerprint FROM store_owner").Scan(&key)
	if err == nil && key != "" && key != h.store.keyPrint {
		h.store.log.Warn("the key is not that of the agent before: what that has encrypted, such as states to roll back to and sessions, cannot be read; put its key back if it is not lost")
	}
	token := uuid.NewString()
	if err := pgx.BeginFunc(ctx, h.conn, func(t pgx.Tx) error { return h.own(ctx, t, token) }); err != nil {
		return fmt.Errorf("become the owner of %s: %w", h.dialect.name(), err)
	}
	h.owner.Store(&token)
	return nil
}

// own stores a token and who this agent is. Unless the agent shares its work, the work of replicas
// ends.
func (h *sessionHold) own(ctx context.Context, t pgx.Tx, token string) error {
	at := h.addresses()
	_, err := t.Exec(ctx, `INSERT INTO store_owner (position, token, agent, host, key_fingerprint, api_address, web_address, shares) VALUES (1, $1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (position) DO UPDATE SET token = excluded.token, agent = excluded.agent, host = excluded.host, key_fingerprint = excluded.key_fingerprint,
		api_address = excluded.api_address, web_address = excluded.web_address, shares = excluded.shares`,
		token, h.store.agent, self(), h.store.keyPrint, at.api, at.web, boolean(h.store.share))
	if err != nil || h.store.share {
		return err
	}
	return endTerms(ctx, t)
}

// reclaim stores a new token, unless another agent has claimed the database since: what this one
// has begun is outdated then.
func (h *sessionHold) reclaim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if h.tried == "" {
		h.tried = uuid.NewString()
	}
	token, at := h.tried, h.addresses()
	done, err := h.conn.Exec(ctx, "UPDATE store_owner SET token = $1, api_address = $2, web_address = $3 WHERE token IN ($1, $4)", token, at.api, at.web, h.token())
	if err != nil {
		return fmt.Errorf("become the owner of %s again: %w", h.dialect.name(), err)
	}
	if done.RowsAffected() == 0 {
		return deploy.Errorf(deploy.Conflict, "another agent has worked with %s in the meantime", h.dialect.name())
	}
	h.owner.Store(&token)
	h.tried = ""
	return nil
}

func (h *sessionHold) token() string {
	if token := h.owner.Load(); token != nil {
		return *token
	}
	return ""
}

// Owned returns an error unless this agent owns the database now, and all terms in ctx are current.
// It returns nil if the ownership cannot be lost and ctx has no terms. The store of a standby that
// shares the work needs a term: without one the error is Fenced.
func (s *Store) Owned(ctx context.Context) error {
	if s.hold != nil {
		if err := s.hold.check(); err != nil {
			return s.fail(err, "check that this agent has the database")
		}
	}
	fences := s.fences(ctx)
	if len(fences) == 0 && s.share && s.hold == nil {
		return deploy.Errorf(deploy.Fenced, "this replica has no right to do that: it works only on what it holds")
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	for _, f := range fences {
		_, holds, err := one(ctx, s, scanNumber, "SELECT 1"+f.from, f.args...)
		if err == nil && !holds {
			err = f.err
		}
		s.countFenced(err)
		if err != nil {
			return s.fail(err, "check the right of this agent to its work")
		}
	}
	return nil
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

// Lost returns the error with which an agent ends that cannot use its database any more. One on its own
// file has no connection to lose: err says what is wrong with that.
func (s *Store) Lost(err error) error {
	if _, file := s.hold.(fileHold); file {
		return err
	}
	return lost(err)
}

func lost(err error) error {
	return fmt.Errorf("this agent lost its connection to the database and stops: %w", err)
}

// watch checks the connection periodically. While the connection is lost, writes fail. watch
// returns an error if another agent has acquired the lock in the meantime.
func (h *sessionHold) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := h.renew(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			h.lost.Store(true)
			h.store.log.Warn("lost the connection that keeps other agents out of the database, connecting again", "error", err)
			if err := h.regain(ctx); err != nil {
				return err
			}
			continue
		}
		pause(ctx, holdEvery)
	}
	h.unlimit(context.WithoutCancel(ctx))
	return nil
}

// renew checks the connection. The server ends it, and so gives the lock to another agent, when
// this one has not done so for holdExpiry: it was stopped, or cannot reach the server any more.
func (h *sessionHold) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	if h.early { // it notices only an unreachable machine
		return h.conn.Ping(ctx)
	}
	_, err := h.conn.Exec(ctx, fmt.Sprintf("SET idle_session_timeout = %d", holdExpiry.Milliseconds()))
	if h.early = postgresCode(err) == undefinedSetting; h.early {
		return nil
	}
	return err
}

// unlimit keeps the connection while the agent stops, which may take longer than holdExpiry.
func (h *sessionHold) unlimit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	if h.early {
		return
	}
	if _, err := h.conn.Exec(ctx, "SET idle_session_timeout = 0"); err != nil {
		h.store.log.Debug("the server may end the connection while the agent stops", "error", err)
	}
}

// regain acquires the lock on a new connection and retries while the server is unreachable.
func (h *sessionHold) regain(ctx context.Context) error {
	_ = h.release() // the connection is replaced either way
	for said := ""; ctx.Err() == nil; pause(ctx, listenBackoff) {
		err := h.reconnect(ctx)
		switch {
		case err == nil:
			h.lost.Store(false)
			h.store.log.Info("has the database for itself again")
			return nil
		case deploy.IsKind(err, deploy.Conflict):
			return lost(err)
		case err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			h.store.log.Warn("cannot connect to the database; trying again", "error", err)
		}
	}
	return nil
}

func (h *sessionHold) reconnect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	if err := h.dial(limited); err != nil {
		return err
	}
	if err := h.lock(limited); err != nil {
		return errors.Join(err, h.release())
	}
	if err := h.reclaim(ctx); err != nil {
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
