package store_test

import (
	"database/sql"
	"os"
	"testing"

	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/pressly/goose/v3"
)

// additiveFrom is the first schema of agents that have replicas. From there on an older agent may
// work next to a newer one that has migrated the database.
const additiveFrom = 33

// shape is what statements of an earlier agent rely on, by the catalog of the server.
type shape struct {
	columns map[string]string // by table and name: the type
	strict  map[string]bool   // those that an INSERT must name
	rules   map[string]bool   // the names of constraints, unique indexes and triggers, after their table
}

// TestMigrationsAreAdditive: a migration leaves tables, columns and types as they are, and asks
// for nothing more of a row of an existing table.
func TestMigrationsAreAdditive(t *testing.T) {
	dsn := postgres.NewDSN(t)
	db := storetest.Raw(t, dsn)
	p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("migrations"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), additiveFrom); err != nil {
		t.Fatal(err)
	}
	before := shapeOf(t, db)
	if before.columns["store_owner.token"] != "text" || !before.strict["applications.name"] || !before.rules["applications applications_pkey"] {
		t.Fatalf("the catalog was not understood: %+v", before)
	}
	for before.next(t, p, db) {
	}
	for _, change := range []string{
		"ALTER TABLE store_owner ADD COLUMN zone TEXT NOT NULL", "ALTER TABLE store_owner DROP COLUMN host", "ALTER TABLE replicas RENAME TO others",
		"ALTER TABLE replicas ALTER COLUMN version TYPE BIGINT USING 0", "CREATE UNIQUE INDEX one_host ON replicas (host)",
		"ALTER TABLE replicas ADD CHECK (host <> '')",
	} {
		if len(before.broken(shapeAfter(t, db, change))) == 0 {
			t.Errorf("the test takes %q for additive", change)
		}
	}
	if broken := before.broken(shapeAfter(t, db, "ALTER TABLE replicas ADD COLUMN zone TEXT NOT NULL DEFAULT ''")); len(broken) > 0 {
		t.Errorf("a column with a default breaks %q", broken)
	}
}

// next applies the next migration and compares; false after the last one.
func (s *shape) next(t *testing.T, p *goose.Provider, db *sql.DB) bool {
	t.Helper()
	pending, err := p.HasPending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !pending {
		return false
	}
	applied, err := p.UpByOne(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after := shapeOf(t, db)
	for _, what := range s.broken(after) {
		t.Errorf("%s breaks earlier agents: %s", applied.Source.Path, what)
	}
	*s = after
	return true
}

// broken returns what statements for shape s cannot rely on in another one.
func (s shape) broken(after shape) (out []string) {
	tables := map[string]bool{}
	for name, kind := range s.columns {
		tables[tableOf(name)] = true
		if after.columns[name] != kind {
			out = append(out, "column "+name+" was "+kind+", is "+after.columns[name])
		}
	}
	for name := range after.strict {
		if tables[tableOf(name)] && !s.strict[name] {
			out = append(out, "column "+name+" must be set")
		}
	}
	for name := range after.rules {
		if tables[tableOf(name)] && !s.rules[name] {
			out = append(out, "new rule "+name)
		}
	}
	return out
}

// tableOf returns the first word of a name.
func tableOf(name string) string {
	for i, c := range name {
		if c == '.' || c == ' ' {
			return name[:i]
		}
	}
	return name
}

// shapeAfter returns the shape after a statement, which is undone.
func shapeAfter(t *testing.T, db *sql.DB, statement string) shape {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(statement); err != nil {
		t.Fatal(err)
	}
	return shapeOf(t, tx)
}

func shapeOf(t *testing.T, db interface {
	Query(query string, args ...any) (*sql.Rows, error)
}) shape {
	t.Helper()
	s := shape{map[string]string{}, map[string]bool{}, map[string]bool{}}
	rows, err := db.Query(`SELECT table_name || '.' || column_name, data_type, is_nullable = 'NO' AND column_default IS NULL FROM information_schema.columns WHERE table_schema = current_schema()
		UNION ALL SELECT conrelid::regclass || ' ' || conname, '', false FROM pg_constraint WHERE conrelid <> 0 AND connamespace = current_schema()::regnamespace
		UNION ALL SELECT indrelid::regclass || ' ' || indexrelid::regclass, '', false FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indisunique AND c.relnamespace = current_schema()::regnamespace
		UNION ALL SELECT tgrelid::regclass || ' ' || tgname, '', false FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal AND c.relnamespace = current_schema()::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind string
		var strict bool
		if err := rows.Scan(&name, &kind, &strict); err != nil {
			t.Fatal(err)
		}
		if kind == "" {
			s.rules[name] = true
			continue
		}
		s.columns[name] = kind
		if strict {
			s.strict[name] = true
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}
