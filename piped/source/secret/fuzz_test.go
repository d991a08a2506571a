package secret

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
)

// FuzzTemplate: whatever a template says, rendering ends in time, and neither an
// error nor a panic shows the secret.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{
		"{{ .encryptedSecrets.password | b64enc }}", "{{ fail .encryptedSecrets.password }}", "{{ index .encryptedSecrets `password` 1 }}",
		"{{ range $i, $x := until 9 }}{{ $x }}{{ end }}", "{{ define `a` }}{{ template `a` . }}{{ end }}{{ template `a` . }}",
		"{{ with .encryptedSecrets }}{{ .password.x }}{{ end }}", "{{ $d := dict }}{{ $_ := set $d `a` $d }}{{ $d }}", "{{ regexFind .encryptedSecrets.password `x` }}",
		"{{ (.encryptedSecrets.password).x }}", "{{ template .encryptedSecrets.password }}", "{{ printf `%999999s` 1 }}", "{{/* a */}}", "{{ break }}",
		"{{ range .encryptedSecrets.password }}{{ end }}", "{{ if eq .encryptedSecrets 1 }}{{ end }}", "{{ slice .encryptedSecrets.password 99 }}",
	} {
		f.Add(text)
	}
	keys := &Keys{cipher: known(secretValue)}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "hunter2") {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		enc := &config.Encryption{EncryptedSecrets: map[string]string{"password": "x"}, DecryptionTargets: []string{"a.yaml"}}
		_, err := New(keys).Tree(ctx, files("apps/web/a.yaml", text), dir, enc, nil)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the secret is shown: %v", err)
		}
		if ctx.Err() != nil {
			t.Errorf("not rendered in time: %v", err)
		}
	})
}

// FuzzEnvelope: nothing that is opened panics, and only envelopes open.
func FuzzEnvelope(f *testing.F) {
	keys := keyPairKeys(f)
	own, err := keys.Encrypt([]byte("hunter2"))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{own, own[:40], "", "AAA=", "//8="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain, err := keys.cipher.open(text)
		if err == nil && string(plain) != "hunter2" {
			t.Errorf("%q opens to %q", text, plain)
		}
	})
}

// known decrypts everything to the same text.
type known string

func (k known) open(string) ([]byte, error) { return []byte(k), nil }
func (k known) seal([]byte) (string, error) { return string(k), nil }
