package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
