// Package store persists the agent's state: applications, candidates,
// deployments with their stages, chains and transition log, commands, stage logs,
// inventory, applied sets, rollout records, API keys, sessions, the audit log and the outbox, in
// SQLite or PostgreSQL behind one type, with one set of migrations and one set of queries.
//
// The package provides the guarantees on which the phases rely. A deployment changes only as
// package deploy allows it, by compare-and-swap on its revision, in one transaction with its
// transition log and its outbox rows. An application has at most one active deployment. Every
// commit, and nothing else, is published on the change feed.
//
// It makes no decision about next steps, reads neither Git nor a cluster, and stores applied
// objects and the secrets of sessions and sign-ins only encrypted.
//
// Stages are rows, not JSON in their deployment. A transition of a stage rewrites the state of
// that stage and of its deployment, but not the options of all stages, and stages can be
// counted by name, status and time in SQL. Reading a page of deployments costs one more query,
// not one per deployment.
//
// Tests of other packages open a store on a temporary SQLite file. Package storetest contains
// the test suite that both engines pass.
package store

import (
	"context"
	"crypto/cipher"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// Options configure a store.
type Options struct {
	// Key is the 32-byte key that encrypts applied sets, and the secrets of sessions and
	// sign-ins. Without it they can neither be stored nor read.
	Key []byte
	// Existing rejects a database with another schema version instead of migrating it. It is
	// for commands that open the store of a running agent.
	Existing bool
	// Exclusive opens the database for an agent. Open returns Conflict while another agent
	// uses it, and Run returns an error when another agent takes it over.
	Exclusive bool
	// Agent identifies the agent of an exclusive database. Its replicas have the same, and the
	// same key.
	Agent string
	// Standby lets Open wait while a replica of the agent uses the database, instead of returning
	// Conflict. Only PostgreSQL supports this.
	Standby Standby
	// Share divides the work of the agent among its replicas. With Exclusive, the store is that of
	// the agent that has the database, and others may join it. Without Exclusive, it is that of a
	// standby that works, too: its effects need a term (see Owned). Only PostgreSQL supports this.
	Share bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger is optional.
	Logger *slog.Logger
	// Metrics records the work of the store; nil discards it.
	Metrics Metrics
}

// Store is the persisted state. Its methods are safe for concurrent use and return errors of
// type *deploy.Error: NotFound, Exists, Conflict, Illegal or Invalid for errors that the
// caller can handle, Unavailable if the database cannot be used now, Internal otherwise. Times
// are stored in UTC with a resolution of milliseconds.
type Store struct {
	dialect dialect
	writer  *sql.DB
	reader  *sql.DB // the same as writer on PostgreSQL
	stmts   statements
	group   group // combines concurrent writers
	feed    feed
	aead    cipher.AEAD
	zippers sync.Pool // of *gzip.Writer
	clock   func() time.Time
	log     *slog.Logger
	metrics Metrics
	id      string    // identifies this process in notifications
	opened  time.Time // start of the listener's first catch-up
	schema  int64     // version of the schema
	hold    hold      // nil unless Exclusive

	agent, keyPrint string       // of the agent that opened the store, and of its key
	share           bool         // Options.Share
	fenced          atomic.Int64 // refusals for a term that was over, until Renew has stored them
}

// Open opens the database that dsn names (sqlite://<path> or postgres://…). It creates it
// where that is possible (a SQLite file and its directory) and brings its schema up to date.
// It returns an error that describes the remedy for an unknown scheme, an unreachable
// database, a damaged SQLite file and a schema of a newer version. The caller closes the
// store.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	aead, err := newAEAD(o.Key)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	d, err := dialectFor(dsn, o.Exclusive || o.Share)
	if err != nil {
		return nil, err
	}
	s := &Store{agent: o.Agent, keyPrint: fingerprint(o.Key), share: o.Share, dialect: d, aead: aead, clock: o.Now, log: o.Logger, metrics: o.Metrics, id: uuid.NewString(), opened: o.Now()}
	if s.writer, s.reader, err = d.open(ctx); err != nil {
		return nil, err
	}
	if o.Exclusive {
		if s.hold, err = acquire(ctx, d, s, o.Standby); err != nil {
			s.hold = nil
			return nil, errors.Join(s.fail(err, "take over the database"), s.Close())
		}
		s.opened = o.Now() // a standby has waited
		if err := s.hold.bar(ctx); err != nil {
			return nil, errors.Join(s.fail(err, "take over the database"), s.Close())
		}
	}
	if s.schema, err = migrate(ctx, d, s.writer, o.Existing); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.hold != nil {
		if err := s.hold.claim(ctx); err != nil {
			return nil, errors.Join(s.fail(err, "take over the database"), s.Close())
		}
	}
	return s, nil
}

// Close closes the database. Watches remain readable but get no further changes.
func (s *Store) Close() error {
	s.stmts.close()
	err := s.writer.Close()
	if s.reader != s.writer {
		err = errors.Join(err, s.reader.Close())
	}
	if s.hold != nil {
		err = errors.Join(err, s.hold.release())
	}
	return s.fail(err, "close the store")
}

// Run publishes the commits of other processes to the watches of this store until ctx ends,
// then it returns nil. Only PostgreSQL supports this; on SQLite it only waits.
//
// It returns an error if another agent has taken over an exclusive database.
func (s *Store) Run(ctx context.Context) error {
	if s.hold == nil {
		return s.dialect.listen(ctx, s)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.dialect.listen(ctx, s) })
	g.Go(func() error { return s.hold.watch(ctx) })
	return s.fail(g.Wait(), "watch the database")
}

// now returns the current time as the database returns it.
func (s *Store) now() time.Time { return milli(s.clock()) }

// fail gives err a kind and prefixes the operation. Errors that have a kind keep it, and their
// text.
func (s *Store) fail(err error, op string) error {
	if err == nil {
		return nil
	}
	var de *deploy.Error
	if errors.As(err, &de) {
		if de.Kind == deploy.Unavailable {
			return &deploy.Error{Kind: de.Kind, Err: err, Store: true}
		}
		return err
	}
	kind := deploy.Internal
	switch {
	case errors.Is(err, context.Canceled):
		kind = deploy.Stopping
	case errors.Is(err, context.DeadlineExceeded), s.dialect.unavailable(err):
		kind = deploy.Unavailable
	}
	return &deploy.Error{Kind: kind, Op: "store: " + op, Err: err, Store: kind == deploy.Unavailable}
}
