package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/source/secret"
)

// sopsFile returns a file that sops made.
func sopsFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("sops", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sopsKeys returns the keys of the files, as the agent's configuration names them.
func sopsKeys(t *testing.T) *secret.Keys {
	t.Helper()
	at := func(name string) string { return filepath.Join("sops", "testdata", "keys", name) }
	passphrase := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(passphrase, []byte("example passphrase\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]config.SOPS{
		"spec.sops.pgpKeyFile: PGP key ":            {PGPKeyFile: at("locked.asc")},
		"spec.sops.ageIdentityFile: expected lines": {AgeIdentityFile: at("pgp.asc") + ".gone"},
	} {
		_, err := secret.LoadKeys(config.SecretManagement{}, c)
		if err == nil || !deploy.IsKind(err, deploy.Invalid) || !strings.HasPrefix(err.Error(), strings.Fields(name)[0]) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	keys, err := secret.LoadKeys(config.SecretManagement{}, config.SOPS{AgeIdentityFile: at("age.txt"), PGPKeyFile: at("pgp.asc"), PGPPassphraseFile: passphrase})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestSOPSFiles: whatever renders sees the decrypted files, messages show nothing of
// them, and a preview shows names in the place of values.
func TestSOPSFiles(t *testing.T) {
	const app = head + "  name: web\n"
	tests := []struct {
		name  string
		files fstest.MapFS
		at    []string
		want  string
	}{
		{"plain manifests", files("apps/web/app.pipecd.yaml", app, "apps/web/.sops.yaml", "creation_rules: []\n", "apps/web/a.yaml", sopsFile(t, "files/secret.yaml")),
			[]string{"stringData", "url"}, "postgres://shop:hunter2-hunter2@db/shop"},
		{"a resource of a kustomization", files("apps/web/app.pipecd.yaml", app, "apps/web/kustomization.yaml", "resources: [../a.yaml]\n", "apps/web/a.yaml", sopsFile(t, "files/secret.yaml")),
			[]string{"data", "password"}, "aHVudGVyMi1odW50ZXIy"},
		{"a file of a generator", files("apps/web/app.pipecd.yaml", app, "apps/web/kustomization.yaml", "secretGenerator: [{name: web, files: [key=tls.key]}]\n", "apps/web/tls.key", sopsFile(t, "files/tls.key")),
			[]string{"data", "key"}, "LS0tLS1CRUdJTiBUSElORy0tLS0tCmFiY2RlZmdoCi0tLS0tRU5EIFRISU5HLS0tLS0K"},
		{"an env file of a generator", files("apps/web/app.pipecd.yaml", app, "apps/web/kustomization.yaml", "secretGenerator: [{name: web, envs: [app.env]}]\n", "apps/web/app.env", sopsFile(t, "files/app.env")),
			[]string{"data", "DB_PASSWORD"}, "aHVudGVyMj1odW50ZXIy"},
		{"values of a chart", files(
			"apps/web/app.pipecd.yaml", app+"  input: {helmChart: {path: .}, helmOptions: {valueFiles: [secrets.yaml]}}\n",
			"apps/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n", "apps/web/secrets.yaml", sopsFile(t, "files/values.yaml"),
			"apps/web/secrets.other.yaml", sopsFile(t, "files/locked.yaml"), // of no key of the agent, and not used
			"apps/web/templates/a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: {password: {{ .Values.auth.password | quote }}}\n"),
			[]string{"stringData", "password"}, "correct-horse-battery"},
	}
	keys := sopsKeys(t)
	charts, err := helm.New(helm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if f, ok := tt.files["apps/web/kustomization.yaml"]; ok {
				f.Data = []byte(strings.ReplaceAll(string(f.Data), "../a.yaml", "a.yaml"))
			}
			load := func(keys *secret.Keys) (*Source, string, error) {
				l, _ := loader(tt.files, 1<<20)
				kubernetesOf(l).Charts, l.Secrets = charts, secret.New(keys)
				s, err := l.Load(t.Context(), at, "c1")
				if err != nil {
					return nil, "", err
				}
				got, _, err := unstructured.NestedString(s.Objects[0].Object, tt.at...)
				return s, got, err
			}
			s, got, err := load(keys)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Fatalf("%v -want +got:\n%s", err, diff)
			}
			if got := s.Redactor.Text("found " + tt.want); got != "found [redacted]" {
				t.Errorf("got %q", got)
			}
			for _, stand := range []*secret.Keys{keys.Concealed(), secret.Placeholders()} {
				_, got, err := load(stand)
				if err != nil || got == "" || got == tt.want || strings.Contains(got, "hunter2") {
					t.Errorf("got %q, %v in place of the value", got, err)
				}
			}
			_, _, err = load(nil)
			if err == nil || !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), ": it is encrypted with SOPS, and the agent has no keys for it: add sops to its configuration") {
				t.Errorf("without keys: %v", err)
			}
		})
	}
}

// TestSOPSValuesAreNotShownInErrors: a parser quotes what it refuses.
func TestSOPSValuesAreNotShownInErrors(t *testing.T) {
	l, _ := loader(files("apps/web/app.pipecd.yaml", head+"  name: web\n  attachment: {sources: {v: values.json}, targets: [a.yaml]}\n  input: {manifests: [a.yaml]}\n",
		"apps/web/values.json", sopsFile(t, "files/config.json"),
		"apps/web/a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: *{{ (fromJson .attachment.v).token }}\n"), 1<<20)
	l.Secrets = secret.New(sopsKeys(t))
	for range 2 { // the second one is remembered
		_, err := l.Load(t.Context(), at, "c1")
		if want := "apps/web/a.yaml:1: not valid YAML: unknown anchor '[redacted]' referenced"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
