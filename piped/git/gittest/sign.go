package gittest

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Signer signs commits.
type Signer struct {
	// Sign is a function for Repo.Sign.
	Sign func(object []byte) (string, error)
	// Public is the public key in the format of a key file: a line of authorized_keys, or an
	// armored OpenPGP key.
	Public string
}

// KeyFile writes the public keys of signers to a temporary file and returns its name.
func KeyFile(t testing.TB, signers ...Signer) string {
	t.Helper()
	var content string
	for _, s := range signers {
		content += s.Public
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// NewSSHSigner returns a signer with a new Ed25519 key.
func NewSSHSigner(t testing.TB, name string) Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return SSHSigner(t, name, key)
}

// SSHSigner returns a signer with the given private key.
func SSHSigner(t testing.TB, name string, key crypto.PrivateKey) Signer {
	t.Helper()
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	line := bytes.TrimSpace(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	return Signer{
		Public: fmt.Sprintf("%s %s\n", line, name),
		Sign:   func(object []byte) (string, error) { return SignSSH(signer, "git", object) },
	}
}

// SignSSH returns an armored signature of message for a namespace; Git uses the namespace
// "git".
func SignSSH(signer ssh.Signer, namespace string, message []byte) (string, error) {
	sig, err := sshsig.Sign(bytes.NewReader(message), signer, sshsig.HashSHA512, namespace)
	if err != nil {
		return "", err
	}
	return string(sshsig.Armor(sig)), nil
}

// NewOpenPGPSigner returns a signer with a new key, created at made and valid for lives; zero
// means no expiry. now returns the time of each signature.
func NewOpenPGPSigner(t testing.TB, name string, made time.Time, lives time.Duration, now func() time.Time) Signer {
	t.Helper()
	entity, err := openpgp.NewEntity(name, "", name+"@example.com", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return made }, KeyLifetimeSecs: uint32(lives / time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	return OpenPGPSigner(t, entity, now)
}

// OpenPGPSigner returns a signer with the given key pair.
func OpenPGPSigner(t testing.TB, entity *openpgp.Entity, now func() time.Time) Signer {
	t.Helper()
	var public bytes.Buffer
	block, err := armor.Encode(&public, openpgp.PublicKeyType, nil)
	if err == nil {
		err = entity.Serialize(block)
	}
	if err == nil {
		err = block.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return Signer{Public: public.String() + "\n", Sign: func(object []byte) (string, error) {
		var armored bytes.Buffer
		err := openpgp.ArmoredDetachSign(&armored, entity, bytes.NewReader(object), &packet.Config{Time: now})
		return armored.String() + "\n", err
	}}
}

// sign signs a commit before it is stored.
func (r *Repo) sign(c *object.Commit) error {
	if r.Sign == nil {
		return nil
	}
	encoded := &plumbing.MemoryObject{}
	if err := c.Encode(encoded); err != nil {
		return err
	}
	reader, err := encoded.Reader()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	c.PGPSignature, err = r.Sign(content)
	return err
}
