package store_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// TestTablesAreThoseOfTheDatabase: no table and no column that a migration made is
// missing from what is backed up, on either engine.
func TestTablesAreThoseOfTheDatabase(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		s := storetest.Open(t, dsn, nil)
		tables, err := store.Tables(t.Context(), s.State(t.Context()).SchemaVersion)
		if err != nil {
			t.Fatal(err)
		}
		described := map[string][]string{}
		for _, table := range tables {
			for _, c := range table.Columns {
				described[table.Name] = append(described[table.Name], c.Name)
			}
		}
		db, there := storetest.Raw(t, dsn), map[string][]string{}
		for name := range storetest.Rows(t, dsn) {
			rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+name)
			if err != nil {
				t.Fatal(err)
			}
			if there[name], err = rows.Columns(); err != nil {
				t.Fatal(err)
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(there, described); diff != "" || len(there) < 25 {
			t.Errorf("tables of the database (-there +described):\n%s", diff)
		}
	})
}

// TestParentsComeFirst: tables can be filled in the order they are described in, in each
// version of the schema.
func TestParentsComeFirst(t *testing.T) {
	newest := storetest.Open(t, storetest.Ready(t), nil).State(t.Context()).SchemaVersion
	for version := int64(1); version <= newest; version++ {
		tables, err := store.Tables(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, table := range tables {
			at[table.Name] = i + 1
		}
		for child, parent := range map[string]string{
			"deployments": "applications", "stage_logs": "deployments", "rollouts": "deployments", "deliveries": "outbox",
			"receiver_notes": "receivers", "plan_previews": "commands", "plan_preview_requests": "commands", "registered_event_labels": "registered_events",
		} {
			if at[child] > 0 && (at[parent] == 0 || at[parent] > at[child]) {
				t.Errorf("version %d: %s comes after %s", version, parent, child)
			}
		}
		if len(at) < 14 {
			t.Errorf("version %d has only %v", version, slices.Sorted(maps.Keys(at)))
		}
	}
	for _, version := range []int64{-1, 0, newest + 1} {
		_, err := store.Tables(t.Context(), version)
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "is not known, this version of piped knows 1 to ") {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// TestNoTableNumbersItsRows: rows are copied with all they hold. A column that counts by
// itself would begin again at 1 after a restore.
func TestNoTableNumbersItsRows(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		storetest.Open(t, dsn, nil)
		query := "SELECT COUNT(*) FROM pg_sequences WHERE sequencename NOT LIKE 'goose_db_version%'"
		if strings.HasPrefix(dsn, "sqlite://") {
			query = "SELECT COUNT(*) FROM sqlite_master WHERE name <> 'goose_db_version' AND sql LIKE '%AUTOINCREMENT%'"
		}
		var n int
		if err := storetest.Raw(t, dsn).QueryRowContext(t.Context(), query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d columns count by themselves (%v): let store.Restore set them, too", n, err)
		}
	})
}
