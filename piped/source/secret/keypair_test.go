package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"strings"
	"sync"
	"testing"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

var rsaKeys = sync.OnceValue(func() []*rsa.PrivateKey {
	var out []*rsa.PrivateKey
	for range 2 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		out = append(out, key)
	}
	return out
})

func block(kind string, der []byte) strict.Secret {
	return strict.NewSecret(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func private(tb testing.TB, key any) strict.Secret {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return block("PRIVATE KEY", der)
}

func public(tb testing.TB, key *rsa.PrivateKey) strict.Secret {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	return block("PUBLIC KEY", der)
}

func keyPairKeys(tb testing.TB) *Keys {
	tb.Helper()
	key := rsaKeys()[0]
	keys, err := KeyPair(private(tb, key), public(tb, key))
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// envelope is PipeCD's, built of nothing but its description. Change changes the
// parts before they are put together.
func envelope(tb testing.TB, key *rsa.PublicKey, plaintext string, change func(length, session, sealed []byte)) []byte {
	tb.Helper()
	session := make([]byte, 32)
	rand.Read(session)
	encrypted, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, key, session, nil)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := aes.NewCipher(session)
	if err != nil {
		tb.Fatal(err)
	}
	gcm, err := cipher.NewGCM(b)
	if err != nil {
		tb.Fatal(err)
	}
	sealed := gcm.Seal(nil, make([]byte, 12), []byte(plaintext), nil)
	length := make([]byte, 2)
	binary.BigEndian.PutUint16(length, uint16(len(encrypted)))
	change(length, encrypted, sealed)
	return append(append(length, encrypted...), sealed...)
}

func unchanged(_, _, _ []byte) {}

func TestPipeCDsEnvelopeIsOpened(t *testing.T) {
	for _, plaintext := range []string{"hunter2", "", "\x00\xff binary", strings.Repeat("long ", 10000)} {
		text := base64.StdEncoding.EncodeToString(envelope(t, &rsaKeys()[0].PublicKey, plaintext, unchanged))
		for _, given := range []string{text, "\n" + text + "\n"} {
			got, err := keyPairKeys(t).cipher.open(given)
			if err != nil || string(got) != plaintext {
				t.Errorf("got %q, %v, want %q", got, err, plaintext)
			}
		}
	}
}

// TestPipeCDOpensWhatIsEncrypted opens an envelope as PipeCD does.
func TestPipeCDOpensWhatIsEncrypted(t *testing.T) {
	text, err := keyPairKeys(t).Encrypt([]byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	n := int(binary.BigEndian.Uint16(data))
	session, err := rsa.DecryptOAEP(sha256.New(), nil, rsaKeys()[0], data[2:2+n], nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := aes.NewCipher(session)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := gcm.Open(nil, make([]byte, 12), data[2+n:], nil)
	if err != nil || len(session) != 32 || string(got) != "hunter2" {
		t.Errorf("got %q with a key of %d bytes, %v", got, len(session), err)
	}
	if again, _ := keyPairKeys(t).Encrypt([]byte("hunter2")); again == text {
		t.Error("the same text was encrypted to the same ciphertext twice")
	}
}

func TestDamagedEnvelopesAreRefused(t *testing.T) {
	own := &rsaKeys()[0].PublicKey
	short := envelope(t, own, "hunter2", unchanged)
	tests := map[string][]byte{
		"nothing":               {},
		"half a length":         {1},
		"a length alone":        {1, 0},
		"no session key":        {0, 0, 1, 2, 3},
		"length beyond the end": envelope(t, own, "hunter2", func(length, _, _ []byte) { length[0] = 0xff }),
		"length too small":      envelope(t, own, "hunter2", func(length, _, _ []byte) { length[1]-- }),
		"session key changed":   envelope(t, own, "hunter2", func(_, session, _ []byte) { session[7] ^= 1 }),
		"text changed":          envelope(t, own, "hunter2", func(_, _, sealed []byte) { sealed[0] ^= 1 }),
		"tag changed":           envelope(t, own, "hunter2", func(_, _, sealed []byte) { sealed[len(sealed)-1] ^= 1 }),
		"cut short":             short[:len(short)-1],
		"for another key":       envelope(t, &rsaKeys()[1].PublicKey, "hunter2", unchanged),
	}
	for name, data := range tests {
		got, err := keyPairKeys(t).cipher.open(base64.StdEncoding.EncodeToString(data))
		if err == nil || got != nil || err.Error() != errNotDecrypted.Error() {
			t.Errorf("%s: got %q, %v, want %v", name, got, err, errNotDecrypted)
		}
	}
	if _, err := keyPairKeys(t).cipher.open("no base64!"); err == nil || !strings.HasPrefix(err.Error(), "expected base64 text") {
		t.Errorf("got %v", err)
	}
}

func TestKeysOfAPair(t *testing.T) {
	own, other := rsaKeys()[0], rsaKeys()[1]
	if _, err := KeyPair(block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(own)), public(t, own)); err != nil {
		t.Errorf("PKCS #1: %v", err)
	}
	tests := []struct {
		name            string
		private, public strict.Secret
		want            string
	}{
		{"no PEM", strict.NewSecret("hunter2"), public(t, own), "spec.secretManagement: private key: expected a PEM block PRIVATE KEY"},
		{"no key", block("PRIVATE KEY", []byte("hunter2")), public(t, own), "spec.secretManagement: private key: expected an RSA key in PKCS #8 (the content is not shown); openssl genrsa makes one"},
		{"the public key twice", public(t, own), public(t, own), "spec.secretManagement: private key: expected an RSA key in PKCS #8 (the content is not shown); openssl genrsa makes one"},
		{"no public PEM", private(t, own), strict.NewSecret("hunter2"), "spec.secretManagement: public key: expected a PEM block PUBLIC KEY"},
		{"the private key twice", private(t, own), private(t, own), "spec.secretManagement: public key: expected an RSA key in PKIX; openssl rsa -pubout makes it of the private key"},
		{"of two pairs", private(t, own), public(t, other), "spec.secretManagement: public key: it does not belong to the private key"},
	}
	for _, tt := range tests {
		_, err := KeyPair(tt.private, tt.public)
		if err == nil || err.Error() != tt.want || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}
