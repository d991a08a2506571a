package store_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
	"golang.org/x/sync/errgroup"
)

// refused asserts that Open fails with the kind, saying all the texts and none
// of the secrets.
func refused(t *testing.T, dsn string, o store.Options, kind deploy.Kind, texts ...string) {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, o)
	if err == nil {
		t.Fatalf("opened: %v", s.Close())
	}
	if deploy.KindOf(err) != kind {
		t.Errorf("kind %s, want %s: %v", deploy.KindOf(err), kind, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error contains the password: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dsn   string
		key   []byte
		kind  deploy.Kind
		texts []string
	}{
		"no scheme":           {dsn: "/var/lib/piped.db", kind: deploy.Invalid, texts: []string{"store.dsn has no scheme", "sqlite://<path>"}},
		"unknown scheme":      {dsn: "mysql://root:s3cret@db/piped", kind: deploy.Invalid, texts: []string{`unknown scheme "mysql"`, "postgres://"}},
		"no path":             {dsn: "sqlite://", kind: deploy.Invalid, texts: []string{"names no file"}},
		"memory":              {dsn: "sqlite://:memory:", kind: deploy.Invalid, texts: []string{"names no file"}},
		"unreadable DSN":      {dsn: "postgres://u:s3cret@db:port/x", kind: deploy.Invalid, texts: []string{"cannot be read", "percent-encoded"}},
		"no listener":         {dsn: "postgres://u:s3cret@127.0.0.1:1/piped", kind: deploy.Unavailable, texts: []string{"the database piped on 127.0.0.1", "refused", "check store.dsn"}},
		"a file in the way":   {dsn: "sqlite://" + file + "/piped.db", kind: deploy.Invalid, texts: []string{"directory of the database file", file}},
		"a directory instead": {dsn: "sqlite://" + t.TempDir(), kind: deploy.Invalid, texts: []string{"open the database file", "is a directory"}},
		"short key":           {dsn: storetest.SQLite(t), key: []byte("short"), kind: deploy.Invalid, texts: []string{"5 bytes instead of 32"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, c.dsn, store.Options{Key: c.key}, c.kind, c.texts...)
		})
	}
}

func TestOpenRefusesADamagedFile(t *testing.T) {
	for name, damage := range map[string]func(content []byte) []byte{
		"no database":        func([]byte) []byte { return bytes.Repeat([]byte("this is no database\n"), 500) },
		"cut short":          func(c []byte) []byte { return c[:len(c)/2+100] },
		"a page overwritten": func(c []byte) []byte { copy(c[4096*5:], bytes.Repeat([]byte{0xa5}, 4096)); return c },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := storetest.SQLite(t)
			fill(t, dsn)
			path := strings.TrimPrefix(dsn, "sqlite://")
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			damaged := damage(content)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, dsn, store.Options{}, deploy.Invalid, path+" is damaged", "left as it is", "-wal", ".recover", "backup", "empty database")
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(damaged, after) {
				t.Errorf("the file was touched: %v", err)
			}
		})
	}
}

// fill writes a few rows and closes the store.
func fill(t *testing.T, dsn string) {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if _, err := s.PutApplication(t.Context(), deploy.Application{ID: id, Name: id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesANewerSchema(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		fill(t, dsn)
		raw := storetest.Raw(t, dsn)
		if _, err := raw.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)"); err != nil {
			t.Fatal(err)
		}
		refused(t, dsn, store.Options{}, deploy.Invalid, "written by a newer version of piped (schema 9999, this one knows ", "run that version")
	})
}

func TestSeveralProcessesMayStartAtOnce(t *testing.T) {
	dsn := postgres.NewDSN(t)
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			s, err := store.Open(context.Background(), dsn, store.Options{})
			if err != nil {
				return err
			}
			return s.Close()
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSQLiteFileIsPrivateWhateverItsName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a dir with ? and % and #")
	s := storetest.Open(t, "sqlite://"+dir+"/pi?ped.db", nil)
	if _, err := s.PutApplication(t.Context(), deploy.Application{ID: "a", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pi?ped.db", "pi?ped.db-wal", "pi?ped.db-shm"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
}

func TestMigrationsAreForwardOnly(t *testing.T) {
	files, err := fs.Glob(os.DirFS("migrations"), "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		if !regexp.MustCompile(`^\d{4}_[a-z_]+\.sql$`).MatchString(name) {
			t.Errorf("%s is not named NNNN_name.sql", name)
		}
		content, err := os.ReadFile(filepath.Join("migrations", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte("-- +goose Up")) || bytes.Contains(content, []byte("goose Down")) {
			t.Errorf("%s does not go up only", name)
		}
	}
}

func TestACancelledContextWritesNothing(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		s := storetest.Open(t, dsn, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.PutApplication(ctx, deploy.Application{ID: "a", Name: "a"})
		if !deploy.IsKind(err, deploy.Stopping) {
			t.Errorf("got %v", err)
		}
		_, err = s.Application(t.Context(), "a")
		if !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("got %v", err)
		}
	})
}
