package source

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/secret"
)

const (
	encrypted = head + "  name: web\n  encryption: {encryptedSecrets: {password: AbCd}, decryptionTargets: [a.yaml]}\n"
	template  = "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: {password: \"{{ .encryptedSecrets.password }}\"}\n"
)

// TestSecretsAreFilledIn: whatever renders sees the decrypted files.
func TestSecretsAreFilledIn(t *testing.T) {
	tests := []struct {
		name  string
		files fstest.MapFS
		field string
		want  string
	}{
		{"plain manifests", files("apps/web/app.pipecd.yaml", encrypted, "apps/web/a.yaml", template), "stringData", "placeholder"},
		{
			"a resource of a kustomization",
			files("apps/web/app.pipecd.yaml", encrypted, "apps/web/a.yaml", template, "apps/web/kustomization.yaml", "resources: [a.yaml]\n"),
			"stringData", "placeholder",
		},
		{
			"a file of a generator",
			files("apps/web/app.pipecd.yaml", encrypted, "apps/web/a.yaml", "{{ .encryptedSecrets.password }}",
				"apps/web/kustomization.yaml", "secretGenerator: [{name: web, files: [password=a.yaml]}]\n"),
			"data", "cGxhY2Vob2xkZXI=",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := loader(tt.files, 0)
			l.Secrets = secret.New(secret.Placeholders())
			s, err := l.Load(t.Context(), at, "c1")
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := unstructured.NestedString(s.Objects[0].Object, tt.field, "password")
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v -want +got:\n%s", err, diff)
			}
			if got := s.Redactor.Text("found placeholder"); got != "found [redacted]" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestSecretsAreNotShownInErrors(t *testing.T) {
	manifest := "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: *{{ .encryptedSecrets.password }}\n"
	l, _ := loader(files("apps/web/app.pipecd.yaml", encrypted, "apps/web/a.yaml", manifest), 1<<20)
	l.Secrets = secret.New(secret.Placeholders())
	for range 2 { // the second one is remembered
		_, err := l.Load(t.Context(), at, "c1")
		if want := "apps/web/a.yaml:1: not valid YAML: unknown anchor '[redacted]' referenced"; err == nil || err.Error() != want || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestKeysAreExchanged: what was remembered with other keys, or none, is not used.
func TestKeysAreExchanged(t *testing.T) {
	l, _ := loader(files("apps/web/app.pipecd.yaml", encrypted, "apps/web/a.yaml", template), 1<<20)
	l.Secrets = secret.New(nil)
	if _, err := l.Load(t.Context(), at, "c1"); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want that there are no keys", err)
	}
	l.Secrets.Use(secret.Placeholders())
	if _, err := l.Load(t.Context(), at, "c1"); err != nil {
		t.Error(err)
	}
	l.Secrets.Use(nil)
	if _, err := l.Load(t.Context(), at, "c1"); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want that there are no keys", err)
	}
}
