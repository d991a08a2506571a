package secret

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

const dir = "apps/web"

// secretValue must never be seen in an error.
const secretValue = "hunter2-hunter2"

// files makes a tree from pairs of path and text; a text "-> x" is a symbolic link.
func files(pairs ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		f := &fstest.MapFile{Data: []byte(pairs[i+1])}
		if target, link := strings.CutPrefix(pairs[i+1], "-> "); link {
			f = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
		}
		tree[pairs[i]] = f
	}
	return tree
}

// encryption is the block for one secret, "password".
func encryption(tb testing.TB, keys *Keys, targets ...string) *config.Encryption {
	tb.Helper()
	text, err := keys.Encrypt([]byte(secretValue))
	if err != nil {
		tb.Fatal(err)
	}
	return &config.Encryption{
		EncryptedSecrets: map[string]string{"password": text}, DecryptionTargets: targets, Position: "apps/web/app.pipecd.yaml:5",
	}
}

func attachment(sources map[string]string, targets ...string) *config.Attachment {
	return &config.Attachment{Sources: sources, Targets: targets, Position: "apps/web/app.pipecd.yaml:9"}
}

func TestTree(t *testing.T) {
	keys, _ := ageKeys(t)
	conf := map[string]string{"conf": "files/app.conf"}
	tests := []struct {
		name  string
		files fstest.MapFS
		enc   *config.Encryption
		att   *config.Attachment
		want  map[string]string
	}{
		{
			"a secret",
			files("apps/web/a.yaml", "p: {{ .encryptedSecrets.password }}\nb: {{ .encryptedSecrets.password | b64enc }}\n", "apps/web/b.yaml", "{{ untouched }}"),
			encryption(t, keys, "a.yaml"), nil,
			map[string]string{"apps/web/a.yaml": "p: hunter2-hunter2\nb: aHVudGVyMi1odW50ZXIy\n", "apps/web/b.yaml": "{{ untouched }}"},
		},
		{
			"an attachment",
			files("apps/web/c.yaml", "data: |\n{{ .attachment.conf | indent 2 }}", "apps/web/files/app.conf", "a = 1\nb = {{ 2 }}"),
			nil, attachment(conf, "c.yaml"),
			map[string]string{"apps/web/c.yaml": "data: |\n  a = 1\n  b = {{ 2 }}", "apps/web/files/app.conf": "a = 1\nb = {{ 2 }}"},
		},
		{
			"a source is read after decryption",
			files("apps/web/c.yaml", "[{{ .attachment.conf }}]", "apps/web/files/app.conf", "p={{ .encryptedSecrets.password }}"),
			encryption(t, keys, "files/app.conf"), attachment(conf, "c.yaml"),
			map[string]string{"apps/web/c.yaml": "[p=hunter2-hunter2]", "apps/web/files/app.conf": "p=hunter2-hunter2"},
		},
		{
			"a target of both has both and is rendered once",
			files("apps/web/c.yaml", `{{ .encryptedSecrets.password }} {{ .attachment.conf }} {{ "{{" }}`, "apps/web/files/app.conf", "c {{ nothing }}"),
			encryption(t, keys, "c.yaml", "c.yaml", "./c.yaml"), attachment(conf, "c.yaml"),
			map[string]string{"apps/web/c.yaml": "hunter2-hunter2 c {{ nothing }} {{"},
		},
		{
			"each target has both",
			files("apps/web/a.yaml", "{{ .attachment.conf }}", "apps/web/b.yaml", "{{ .encryptedSecrets.password }}", "apps/web/files/app.conf", "c"),
			encryption(t, keys, "a.yaml"), attachment(conf, "b.yaml"),
			map[string]string{"apps/web/a.yaml": "c", "apps/web/b.yaml": secretValue},
		},
		{
			"through links inside the directory, under every name",
			files("apps/web/link.yaml", "-> files/real.yaml", "apps/web/files/real.yaml", "{{ .encryptedSecrets.password }}", "other/link.yaml", "-> ../apps/web/link.yaml"),
			encryption(t, keys, "link.yaml"), nil,
			map[string]string{"apps/web/link.yaml": secretValue, "apps/web/files/real.yaml": secretValue, "other/link.yaml": secretValue},
		},
		{
			"templates of templates, in order",
			files("apps/web/a.yaml", "{{ define \"x\" }}{{ range $k, $v := . }}{{ $k }}={{ $v }};{{ end }}{{ end }}{{ template \"x\" .encryptedSecrets }}{{ keys (dict \"b\" 1 \"a\" 2) }}{{ values (dict \"b\" 1 \"a\" 2) }}"),
			encryption(t, keys, "a.yaml"), nil,
			map[string]string{"apps/web/a.yaml": "password=hunter2-hunter2;[a b][2 1]"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := New(keys).Tree(t.Context(), tt.files, dir, tt.enc, tt.att)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range tt.want {
				data, err := fs.ReadFile(got, name)
				if diff := cmp.Diff(want, string(data)); err != nil || diff != "" {
					t.Errorf("%s: %v -want +got:\n%s", name, err, diff)
				}
			}
			var all []string
			for name := range tt.files {
				all = append(all, name)
			}
			if err := fstest.TestFS(got, all...); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingToRenderIsTheTreeItself(t *testing.T) {
	tree := files("apps/web/a.yaml", "{{ .encryptedSecrets.password }}")
	for _, r := range []*Renderer{nil, New(nil), New(keyPairKeys(t))} {
		for _, enc := range []*config.Encryption{nil, {DecryptionTargets: []string{"a.yaml"}}} {
			for _, att := range []*config.Attachment{nil, {Targets: []string{"a.yaml"}}} {
				got, err := r.Tree(t.Context(), tree, dir, enc, att)
				if err != nil {
					t.Fatal(err)
				}
				if same, ok := got.(fstest.MapFS); !ok || len(same) != 1 {
					t.Errorf("got %T, want the tree itself", got)
				}
			}
		}
	}
}

func TestWithoutKeys(t *testing.T) {
	tree := files("apps/web/a.yaml", "{{ .attachment.b }}", "apps/web/b", "b")
	enc := encryption(t, keyPairKeys(t), "a.yaml")
	for _, r := range []*Renderer{nil, New(nil)} {
		_, err := r.Tree(t.Context(), tree, dir, enc, nil)
		want := "apps/web/app.pipecd.yaml:5: spec.encryption: the agent has no keys to decrypt secrets with; " +
			"add secretManagement to its configuration, or remove spec.encryption here"
		if err == nil || err.Error() != want || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("got %v, want %s", err, want)
		}
		if r.Fingerprint() != "" {
			t.Errorf("got fingerprint %q", r.Fingerprint())
		}
		if _, err := r.Tree(t.Context(), tree, dir, nil, attachment(map[string]string{"b": "b"}, "a.yaml")); err != nil {
			t.Errorf("attachments need no keys: %v", err)
		}
	}
}

func TestKeysAreExchanged(t *testing.T) {
	first, _ := ageKeys(t)
	second := keyPairKeys(t)
	r := New(first)
	before := r.Fingerprint()
	tree := files("apps/web/a.yaml", "{{ .encryptedSecrets.password }}")
	enc := encryption(t, second, "a.yaml")
	if _, err := r.Tree(t.Context(), tree, dir, enc, nil); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want that the key is another", err)
	}
	r.Use(second)
	if _, err := r.Tree(t.Context(), tree, dir, enc, nil); err != nil {
		t.Error(err)
	}
	if before == r.Fingerprint() || r.Fingerprint() != keyPairKeys(t).fingerprint {
		t.Errorf("got fingerprints %s and %s, want one for each key", before, r.Fingerprint())
	}
}

func TestPlaceholders(t *testing.T) {
	enc := &config.Encryption{EncryptedSecrets: map[string]string{"password": "whatever it is"}, DecryptionTargets: []string{"a.yaml"}}
	r := New(Placeholders())
	got, err := r.Tree(t.Context(), files("apps/web/a.yaml", "p: {{ .encryptedSecrets.password }}"), dir, enc, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(got, "apps/web/a.yaml"); err != nil || string(text) != "p: placeholder" {
		t.Errorf("got %s, %v", text, err)
	}
	_, err = r.Tree(t.Context(), files("apps/web/a.yaml", "\np: {{ .encryptedSecrets.passwort }}"), dir, enc, nil)
	if want := "apps/web/a.yaml:2: there is no passwort in spec.encryption.encryptedSecrets, only password"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCancelled(t *testing.T) {
	keys, _ := ageKeys(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	enc := encryption(t, keys, "a.yaml")
	_, err := New(keys).Tree(ctx, files("apps/web/a.yaml", "{{ range 9 }}{{ end }}"), dir, enc, nil)
	if !errors.Is(err, context.Canceled) || deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestLoadKeys(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	id, identity := agePair(t)
	key := rsaKeys()[0]
	none := filepath.Join(folder, "none")
	tests := []struct {
		name   string
		config any
		want   string // the error
	}{
		{"none", nil, ""},
		{"pair in files", &config.KeyPair{PrivateKeyFile: write("key", private(t, key).Reveal()), PublicKeyFile: write("pub", public(t, key).Reveal())}, ""},
		{"pair as data", &config.KeyPair{PrivateKeyData: private(t, key), PublicKeyData: public(t, key)}, ""},
		{"age in a file", &config.Age{IdentityFile: write("age", identity.Reveal()), Recipient: id.Recipient().String()}, ""},
		{"age as data", &config.Age{IdentityData: identity, Recipient: id.Recipient().String()}, ""},
		{"no private key", &config.KeyPair{PrivateKeyFile: none, PublicKeyData: public(t, key)}, "spec.secretManagement.config.privateKeyFile: open " + none + ": no such file or directory"},
		{"no public key", &config.KeyPair{PrivateKeyData: private(t, key), PublicKeyFile: none}, "spec.secretManagement.config.publicKeyFile: open " + none + ": no such file or directory"},
		{"no identity", &config.Age{IdentityFile: none}, "spec.secretManagement.config.identityFile: open " + none + ": no such file or directory"},
	}
	for _, tt := range tests {
		keys, err := LoadKeys(config.SecretManagement{Config: tt.config}, config.SOPS{})
		switch {
		case tt.want != "":
			if err == nil || err.Error() != tt.want || !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
			}
		case err != nil || (keys == nil) != (tt.config == nil):
			t.Errorf("%s: got %v, %v", tt.name, keys, err)
		}
	}
}
