package secret

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRendererEncryptsForItsKeys: what a renderer says of its keys, and encrypts,
// follows the keys; what it encrypts it can open.
func TestRendererEncryptsForItsKeys(t *testing.T) {
	pair := keyPairKeys(t)
	file, recipient := ageKeys(t)
	renderer := New(nil)
	if _, err := renderer.Encrypt([]byte("hunter2")); !deploy.IsKind(err, deploy.Illegal) || !strings.Contains(err.Error(), "add secretManagement") {
		t.Errorf("without keys: %v", err)
	}
	if got := renderer.Encryption(); got != (deploy.AgentEncryption{}) {
		t.Errorf("without keys it says %+v", got)
	}
	for kind, keys := range map[string]*Keys{"KEY_PAIR": pair, "AGE": file} {
		renderer.Use(keys)
		text, err := renderer.Encrypt([]byte("hunter2\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys.cipher.open(text); err != nil || string(got) != "hunter2\n" {
			t.Errorf("%s: opened %q, %v", kind, got, err)
		}
		said := renderer.Encryption()
		if said.Type != kind {
			t.Errorf("%s: it says %+v", kind, said)
		}
		if kind == "AGE" && said.PublicKey != recipient.(interface{ String() string }).String() {
			t.Errorf("%s: the recipient is %q", kind, said.PublicKey)
		}
	}
	// The public key is one that PipeCD's clients can encrypt with.
	key, err := publicKey(pair.Public().PublicKey)
	if err != nil || !pair.cipher.(keyPair).key.PublicKey.Equal(key) {
		t.Errorf("the public key is %q, %v", pair.Public().PublicKey, err)
	}
	if diff := cmp.Diff(deploy.AgentEncryption{}, (*Keys)(nil).Public()); diff != "" {
		t.Errorf("no keys (-want +got):\n%s", diff)
	}
}
