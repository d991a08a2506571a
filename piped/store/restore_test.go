package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// copyTo restores what a store holds into another database.
func copyTo(ctx context.Context, s *store.Store, dsn string, also func() error) error {
	return s.Snapshot(ctx, func(n store.Snapshot) error {
		return store.Restore(ctx, dsn, n.Schema, func(put store.Put) error {
			for _, table := range n.Tables {
				for row, err := range n.Rows(ctx, table) {
					if err != nil {
						return err
					}
					if err := put(table, append([]any(nil), row...)); err != nil {
						return err
					}
				}
			}
			return also()
		})
	})
}

func fine() error { return nil }

// TestUnfinishedRestore: an incomplete restore is not usable, whatever ended it, and
// the next restore completes it.
func TestUnfinishedRestore(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		source := storetest.Ready(t)
		s := storetest.Open(t, source, nil)
		storetest.Fill(t, s)
		full := errors.New("the disk is full")
		if err := copyTo(t.Context(), s, dsn, func() error { return full }); !errors.Is(err, full) {
			t.Fatalf("got %v", err)
		}
		unusable := func() {
			t.Helper()
			for _, o := range []store.Options{{}, {Existing: true}} {
				refused(t, dsn, o, deploy.Invalid, "is not whole", "Repeat it with piped restore")
			}
		}
		unusable()
		ctx, cancel := context.WithCancel(t.Context())
		if err := copyTo(ctx, s, dsn, func() error { cancel(); return ctx.Err() }); err == nil {
			t.Fatal("a cancelled restore did not end")
		}
		unusable()
		older := store.Restore(t.Context(), dsn, 3, func(store.Put) error { return nil })
		if !deploy.IsKind(older, deploy.Exists) || !strings.Contains(older.Error(), "it was of a newer backup") {
			t.Errorf("an older one in its place: %v", older)
		}
		for name, rows := range storetest.Rows(t, dsn) {
			if len(rows) > 0 && name != "counters" {
				t.Errorf("rows of %s were left: %q", name, rows)
			}
		}
		if err := copyTo(t.Context(), s, dsn, fine); err != nil {
			t.Fatal(err)
		}
		want := storetest.Rows(t, source)
		want["store_identity"] = nil // a restored store is another one, and gets its own
		if diff := cmp.Diff(want, storetest.Rows(t, dsn)); diff != "" {
			t.Errorf("restored (-there +here):\n%s", diff)
		}
		storetest.Open(t, dsn, nil)
	})
}

// TestRestoreTouchesNothing: what is there stays.
func TestRestoreTouchesNothing(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		storetest.Fill(t, storetest.Open(t, dsn, nil))
		before := storetest.Rows(t, dsn)
		s := storetest.New(t, nil)
		for range 2 {
			err := copyTo(t.Context(), s, dsn, fine)
			if !deploy.IsKind(err, deploy.Exists) || !strings.Contains(err.Error(), "is not empty") || !strings.Contains(err.Error(), "store.dsn") {
				t.Errorf("into a store that is used: %v", err)
			}
		}
		if diff := cmp.Diff(before, storetest.Rows(t, dsn)); diff != "" {
			t.Errorf("the refused restore changed (-before +after):\n%s", diff)
		}
		storetest.Open(t, dsn, nil)
	})
}

// TestSnapshotIsOfOneMoment: what is committed while it is read is not in it, whichever
// table is read when.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		s := storetest.Open(t, dsn, nil)
		storetest.Fill(t, s)
		before, seen := storetest.Rows(t, dsn), map[string]int{}
		err := s.Snapshot(t.Context(), func(n store.Snapshot) error {
			for _, table := range n.Tables {
				if _, err := s.PutApplication(t.Context(), deploy.Application{ID: "new " + table.Name, Name: "new", Labels: map[string]string{"a": "b"}}); err != nil {
					return err
				}
				for _, err := range n.Rows(t.Context(), table) {
					if err != nil {
						return err
					}
					seen[table.Name]++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, rows := range before {
			if seen[name] != len(rows) {
				t.Errorf("%s has %d rows in the snapshot, it had %d", name, seen[name], len(rows))
			}
		}
		if after := storetest.Rows(t, dsn); len(after["applications"]) != len(before["applications"])+len(before) {
			t.Errorf("not all was written meanwhile: %d applications", len(after["applications"]))
		}
	})
}

// TestSnapshotAfterAMigration: rows are not read as another version of the schema had
// them.
func TestSnapshotAfterAMigration(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		s := storetest.Open(t, dsn, nil)
		if _, err := storetest.Raw(t, dsn).Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)"); err != nil {
			t.Fatal(err)
		}
		err := s.Snapshot(t.Context(), func(store.Snapshot) error { return nil })
		if !deploy.IsKind(err, deploy.Conflict) || !strings.Contains(err.Error(), "to 9999 meanwhile") {
			t.Errorf("got %v", err)
		}
	})
}
