package secret

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"golang.org/x/crypto/ssh"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// agePair returns an identity as age-keygen writes it, and its recipient.
func agePair(tb testing.TB) (*age.X25519Identity, strict.Secret) {
	tb.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	return id, strict.NewSecret("# created: 2026-01-01\n# public key: " + id.Recipient().String() + "\n" + id.String() + "\n")
}

func ageKeys(tb testing.TB) (*Keys, age.Recipient) {
	tb.Helper()
	id, text := agePair(tb)
	keys, err := Age(text, id.Recipient().String())
	if err != nil {
		tb.Fatal(err)
	}
	return keys, id.Recipient()
}

// ageText encrypts as the age program does.
func ageText(tb testing.TB, plaintext string, armored bool, to ...age.Recipient) string {
	tb.Helper()
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to...)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write([]byte(plaintext)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if !armored {
		return base64.StdEncoding.EncodeToString(out.Bytes())
	}
	var text strings.Builder
	a := armor.NewWriter(&text)
	if _, err := a.Write(out.Bytes()); err != nil {
		tb.Fatal(err)
	}
	if err := a.Close(); err != nil {
		tb.Fatal(err)
	}
	return text.String()
}

func TestAgeFilesAreOpened(t *testing.T) {
	keys, to := ageKeys(t)
	other, _ := agePair(t)
	own, err := keys.Encrypt([]byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"armored":              ageText(t, "hunter2", true, to),
		"in base64":            ageText(t, "hunter2", false, to),
		"for several":          ageText(t, "hunter2", true, other.Recipient(), to),
		"our own":              own,
		"indented, as in YAML": "\n  " + ageText(t, "hunter2", true, to) + "\n",
	}
	for name, text := range tests {
		if got, err := keys.cipher.open(text); err != nil || string(got) != "hunter2" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestAgeFilesThatCannotBeOpened(t *testing.T) {
	keys, to := ageKeys(t)
	other, _ := agePair(t)
	passphrase, err := age.NewScryptRecipient("hunter2")
	if err != nil {
		t.Fatal(err)
	}
	passphrase.SetWorkFactor(4)
	data, err := base64.StdEncoding.DecodeString(ageText(t, "hunter2", false, to))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	const another = "cannot be decrypted with the agent's identity: it was encrypted for another one; encrypt the secret anew for the agent's recipient"
	tests := map[string]struct{ text, want string }{
		"nothing":         {"", errNotAge.Error()},
		"plain text":      {"hunter2!", errNotAge.Error()},
		"other base64":    {"aHVudGVyMg==", errNotAge.Error()},
		"cut armor":       {ageText(t, "hunter2", true, to)[:100], errNotAge.Error()},
		"for another":     {ageText(t, "hunter2", true, other.Recipient()), another},
		"by a passphrase": {ageText(t, "hunter2", true, passphrase), another},
		"changed":         {base64.StdEncoding.EncodeToString(data), "the age file is damaged; encrypt the secret anew"},
	}
	for name, tt := range tests {
		if got, err := keys.cipher.open(tt.text); err == nil || got != nil || err.Error() != tt.want {
			t.Errorf("%s: got %q, %v, want %s", name, got, err, tt.want)
		}
	}
}

func TestAgeTakesSSHKeys(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	recipient := string(ssh.MarshalAuthorizedKey(wire))
	plain, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := Age(strict.NewSecret(string(pem.EncodeToMemory(plain))), recipient)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keys.Encrypt([]byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keys.cipher.open(text); err != nil || string(got) != "hunter2" {
		t.Errorf("got %q, %v", got, err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Age(strict.NewSecret(string(pem.EncodeToMemory(locked))), recipient)
	if want := "spec.secretManagement: identity: expected an SSH private key without a passphrase, Ed25519 or RSA (the content is not shown)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAgeKeysThatMakeNoSense(t *testing.T) {
	id, text := agePair(t)
	other, _ := agePair(t)
	const noIdentity = "spec.secretManagement: identity: expected lines of AGE-SECRET-KEY-1..., as age-keygen writes them (the content is not shown)"
	const noRecipient = "spec.secretManagement.config.recipient: expected one age1..., or an SSH public key; age-keygen -y prints the one of an identity"
	tests := []struct {
		identity  strict.Secret
		recipient string
		want      string
	}{
		{strict.NewSecret(""), id.Recipient().String(), noIdentity},
		{strict.NewSecret("hunter2"), id.Recipient().String(), noIdentity},
		{strict.NewSecret(id.String()[:30]), id.Recipient().String(), noIdentity},
		{text, "", noRecipient},
		{text, id.String(), noRecipient},
		{text, "ssh-ed25519 x", "spec.secretManagement.config.recipient: expected an SSH public key, ssh-ed25519 or ssh-rsa, or the age1... of an identity"},
		{text, other.Recipient().String(), "spec.secretManagement.config.recipient: it does not belong to the identity; age-keygen -y prints the one that does"},
	}
	for _, tt := range tests {
		_, err := Age(tt.identity, tt.recipient)
		if err == nil || err.Error() != tt.want || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
