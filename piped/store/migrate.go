package store

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/pressly/goose/v3"
)

// migrations contains the files NNNN_name.sql. They are applied in order and never undone.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date and returns its version. It returns an error for a
// schema that is newer than this program, for any other version than this program's if
// existing is set, and for a database whose restore is incomplete.
func migrate(ctx context.Context, d dialect, db *sql.DB, existing bool) (version int64, err error) {
	p, err := newProvider(d, db)
	if err != nil {
		return 0, err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return 0, d.openError("read the schema version", err)
	}
	if err := whole(ctx, d, db); err != nil {
		return 0, err
	}
	if current > target {
		return 0, deploy.Errorf(deploy.Invalid, "%s was written by a newer version of piped (schema %d, this one knows %d): "+
			"run that version or a later one, or point store.dsn at another database", d.name(), current, target)
	}
	if current == target {
		return current, nil
	}
	if existing {
		return 0, deploy.Errorf(deploy.Invalid, "%s was not written by this version of piped (schema %d, this one has %d): "+
			"start the agent with this version first, or use that of the agent", d.name(), current, target)
	}
	if _, err := p.Up(ctx); err != nil {
		return 0, d.openError("migrate the schema", err)
	}
	return target, whole(ctx, d, db) // a restore may have started before the schema was locked
}

// newProvider returns the goose provider of the migrations.
func newProvider(d dialect, db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "read the embedded migrations: %w", err)
	}
	options, err := d.migrationOptions()
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "prepare the schema migration: %w", err)
	}
	options = append(options, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	p, err := goose.NewProvider(d.goose(), db, files, options...)
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "prepare the schema migration: %w", err)
	}
	return p, nil
}

// rowQuerier is a database or a transaction.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schemaOf returns the version of the schema, 0 for an empty database in which the table of
// versions exists.
func schemaOf(ctx context.Context, q rowQuerier) (version int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied = TRUE").Scan(&version)
	return version, err
}

// hasTable reports whether there is a table with that name.
func hasTable(ctx context.Context, d dialect, q rowQuerier, name string) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, d.rewrite(d.countTables()), name).Scan(&n)
	return n > 0, err
}
