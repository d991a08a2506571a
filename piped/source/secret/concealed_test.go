package secret

import (
	"regexp"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestConcealed: concealed keys distinguish ciphertexts, reveal nothing of
// their content, and refuse what the keys refuse.
func TestConcealed(t *testing.T) {
	keys, _ := ageKeys(t)
	sealed := func() string {
		text, err := keys.Encrypt([]byte("hunter2"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first, second := sealed(), sealed()
	got, err := keys.Concealed().decrypt(&config.Encryption{EncryptedSecrets: map[string]string{"a": first, "b": second, "again": "\n" + first + "\n"}})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^redacted-[0-9a-f]{12}$`).MatchString(got["a"]) || got["a"] == got["b"] || got["a"] != got["again"] {
		t.Errorf("concealed as %q", got)
	}
	if _, err := keys.Concealed().decrypt(&config.Encryption{EncryptedSecrets: map[string]string{"a": "no ciphertext"}}); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("what the keys cannot open: %v", err)
	}
	if fp := keys.Concealed().Fingerprint(); fp == keys.Fingerprint() || fp == "" {
		t.Errorf("the fingerprint is %q", fp)
	}
	var none *Keys
	if none.Concealed() != nil {
		t.Error("no keys are concealed as some")
	}
}
