package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestAppliedSetsAreUnreadableWithoutTheirKey(t *testing.T) {
	const secret = "correct horse battery staple"
	engines(t, func(t *testing.T, dsn string) {
		ctx, s := t.Context(), storetest.Open(t, dsn, nil)
		if _, err := s.PutApplication(ctx, deploy.Application{ID: "a", Name: "a"}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"d1", "d2"} {
			if _, err := s.CreateDeployment(ctx, store.NewDeployment{Deployment: deploy.Deployment{ID: id, ApplicationID: "a", Status: deploy.Pending}}); err != nil {
				t.Fatal(err)
			}
		}
		set := deploy.AppliedSet{ApplicationID: "a", DeploymentID: "d1", Objects: []byte(`[{"password":"` + secret + `"}]`)}
		if err := s.SaveAppliedSet(ctx, set); err != nil {
			t.Fatal(err)
		}
		if got, err := s.AppliedSet(ctx, "d1"); err != nil || !bytes.Equal(got.Objects, set.Objects) {
			t.Fatalf("read back: %s, %v", got.Objects, err)
		}

		raw := storetest.Raw(t, dsn)
		var sealed []byte
		if err := raw.QueryRow("SELECT sealed FROM applied_sets").Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		if len(sealed) == 0 || bytes.Contains(sealed, []byte("password")) || bytes.Contains(sealed, []byte{0x1f, 0x8b}) {
			t.Errorf("stored in the clear: %q", sealed)
		}
		if path, ok := strings.CutPrefix(dsn, "sqlite://"); ok {
			notOnDisk(t, filepath.Dir(path), secret)
		}

		for name, key := range map[string][]byte{"cannot be decrypted": bytes.Repeat([]byte("x"), 32), "without the key": nil} {
			other, err := store.Open(ctx, dsn, store.Options{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := other.AppliedSet(ctx, "d1"); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("want %q, got %s and %v", name, got.Objects, err)
			}
			if err := other.SaveAppliedSet(ctx, set); (err == nil) != (key != nil) {
				t.Errorf("save with key %q: %v", key, err)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
			if err := s.SaveAppliedSet(ctx, set); err != nil {
				t.Fatal(err)
			}
		}

		// A set is bound to its deployment.
		if _, err := raw.Exec("UPDATE applied_sets SET deployment_id = 'd2'"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppliedSet(ctx, "d2"); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("another deployment's set was read: %v", err)
		}
	})
}

// TestSecretsOfPeopleAreUnreadableWithoutTheirKey: what reads the groups of a user, and what a
// sign-in needs, is stored encrypted and bound to its row.
func TestSecretsOfPeopleAreUnreadableWithoutTheirKey(t *testing.T) {
	const secret = "correct horse battery staple"
	engines(t, func(t *testing.T, dsn string) {
		ctx, s := t.Context(), storetest.Open(t, dsn, nil)
		user, later := deploy.User{Issuer: "corp", Subject: "jane"}, time.Now().Add(time.Hour)
		create := func(s *store.Store, id string) error {
			return s.CreateSession(ctx, deploy.Session{ID: id, Hash: []byte(id), User: user, Refresh: []byte(secret), ExpiresAt: later})
		}
		put := func(s *store.Store, hash string) error {
			return s.PutSignInState(ctx, []byte(hash), []byte(`{"verifier":"`+secret+`"}`), later)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			if err := errors.Join(create(s, name), put(s, name)); err != nil {
				t.Fatal(err)
			}
		}
		raw := storetest.Raw(t, dsn)
		for _, query := range []string{"SELECT refresh FROM sessions WHERE id = 'a'", "SELECT payload FROM sign_in_states"} {
			var sealed []byte
			if err := raw.QueryRow(query).Scan(&sealed); err != nil || len(sealed) <= len(secret) || bytes.Contains(sealed, []byte("horse")) {
				t.Errorf("%s: stored in the clear: %q, %v", query, sealed, err)
			}
		}
		if path, ok := strings.CutPrefix(dsn, "sqlite://"); ok {
			notOnDisk(t, filepath.Dir(path), secret)
		}
		for name, key := range map[string][]byte{"cannot be decrypted": bytes.Repeat([]byte("x"), 32), "without the key": nil} {
			other := reopen(t, dsn, key)
			if got, err := other.Session(ctx, "a"); err == nil || !strings.Contains(err.Error(), name) || got.Refresh != nil {
				t.Errorf("want %q, got %s and %v", name, got.Refresh, err)
			}
			if got, err := other.TakeSignInState(ctx, []byte(map[bool]string{true: "a", false: "b"}[key == nil])); err == nil || !strings.Contains(err.Error(), name) || got != nil {
				t.Errorf("want %q, got %s and %v", name, got, err)
			}
			for what, err := range map[string]error{
				"create": create(other, "new"+name), "put": put(other, "new"+name), "update": other.UpdateSessionUser(ctx, "d", user, []byte(secret), later),
			} {
				if (err == nil) != (key != nil) {
					t.Errorf("%s with key %q: %v", what, key, err)
				}
			}
		}
		// Secrets are bound to their rows.
		for _, statement := range []string{
			"UPDATE sessions SET refresh = (SELECT refresh FROM sessions other WHERE other.id = 'a') WHERE id = 'b'",
			"UPDATE sign_in_states SET payload = (SELECT other.refresh FROM sessions other WHERE other.id = 'a')",
		} {
			if _, err := raw.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Session(ctx, "b"); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("another session's secret was read: %v", err)
		}
		if _, err := s.TakeSignInState(ctx, []byte("c")); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("a session's secret was read as a sign-in: %v", err)
		}
		// A session without a secret needs no key.
		if err := reopen(t, dsn, nil).CreateSession(ctx, deploy.Session{ID: "bare", Hash: []byte("bare"), User: user, ExpiresAt: later}); err != nil {
			t.Error(err)
		}
		if err := s.EndSession(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		var left []byte
		if err := raw.QueryRow("SELECT refresh FROM sessions WHERE id = 'a'").Scan(&left); err != nil || len(left) != 0 {
			t.Errorf("an ended session still has its secret: %q, %v", left, err)
		}
	})
}

// reopen opens a store with another key until the test ends.
func reopen(t *testing.T, dsn string, key []byte) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, store.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// notOnDisk asserts that no file of the directory holds the text.
func notOnDisk(t *testing.T, dir, text string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			t.Errorf("%s holds the secret in the clear", f.Name())
		}
	}
}
