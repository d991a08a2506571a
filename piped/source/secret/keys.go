package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/sops"
)

// Keys decrypts secrets from Git and encrypts new ones. It is immutable and safe for concurrent
// use.
type Keys struct {
	cipher      cryptosystem // nil if there are only keys for SOPS files
	public      deploy.AgentEncryption
	fingerprint string
	sops        *sops.Keys
	how         sops.How
}

// cryptosystem is an encryption format with its keys. Errors contain neither keys nor
// plaintext.
type cryptosystem interface {
	open(ciphertext string) ([]byte, error)
	seal(plaintext []byte) (string, error)
}

func newKeys(c cryptosystem, public deploy.AgentEncryption, identity []byte) *Keys {
	sum := sha256.Sum256(identity)
	return &Keys{cipher: c, public: public, fingerprint: hex.EncodeToString(sum[:])}
}

// Fingerprint identifies the keys without revealing them; "" for nil.
func (k *Keys) Fingerprint() string {
	if k == nil {
		return ""
	}
	return k.fingerprint
}

// SOPSFingerprint identifies the keys for SOPS files; "" if there are none.
func (k *Keys) SOPSFingerprint() string {
	if k == nil {
		return ""
	}
	return k.sops.Fingerprint()
}

// LoadKeys loads the keys in the agent's configuration and its key files; nil if it has neither
// secretManagement nor sops. Keys of an unsupported type return an error for every secret.
// Errors of LoadKeys are of kind Invalid and name the field or file to correct.
func LoadKeys(m config.SecretManagement, s config.SOPS) (*Keys, error) {
	keys, err := loadKeys(m)
	if err != nil || s == (config.SOPS{}) {
		return keys, err
	}
	files, err := loadSOPS(s)
	if err != nil {
		return nil, err
	}
	return keys.withSOPS(files), nil
}

// withSOPS returns a copy of k, which may be nil, with keys for SOPS files.
func (k *Keys) withSOPS(files *sops.Keys) *Keys {
	both := Keys{}
	if k != nil {
		both = *k
	}
	both.sops, both.fingerprint = files, both.fingerprint+" "+files.Fingerprint()
	return &both
}

// loadKeys loads the keys of secretManagement; nil if it is not configured.
func loadKeys(m config.SecretManagement) (*Keys, error) {
	switch c := m.Config.(type) {
	case *config.KeyPair:
		private, err := keyText("privateKey", c.PrivateKeyFile, c.PrivateKeyData)
		if err != nil {
			return nil, err
		}
		public, err := keyText("publicKey", c.PublicKeyFile, c.PublicKeyData)
		if err != nil {
			return nil, err
		}
		return KeyPair(private, public)
	case *config.Age:
		identities, err := keyText("identity", c.IdentityFile, c.IdentityData)
		if err != nil {
			return nil, err
		}
		return Age(identities, c.Recipient)
	}
	if m.Type != "" {
		return &Keys{cipher: unsupported(m.Type), fingerprint: "unsupported " + string(m.Type)}, nil
	}
	return nil, nil
}

// unsupported is an encryption format that this version does not support. All calls fail.
type unsupported config.SecretManagementType

func (u unsupported) open(string) ([]byte, error) { return nil, u.err() }

func (u unsupported) seal([]byte) (string, error) { return "", u.err() }

func (u unsupported) err() error {
	return deploy.Errorf(deploy.Invalid, "secretManagement of the agent's configuration is of type %s, which this version of piped cannot decrypt: use %s or %s and encrypt the secret anew",
		string(u), config.SecretManagementKeyPair, config.SecretManagementAge)
}

// keyText returns the content of a key's file, or text if file is "".
func keyText(name, file string, text strict.Secret) (strict.Secret, error) {
	if file == "" {
		return text, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return strict.Secret{}, deploy.Errorf(deploy.Invalid, "spec.secretManagement.config.%sFile: %w", name, err)
	}
	return strict.NewSecret(string(content)), nil
}

// Public returns the format and the public key for encrypting secrets; zero for nil.
func (k *Keys) Public() deploy.AgentEncryption {
	if k == nil {
		return deploy.AgentEncryption{}
	}
	return k.public
}

// Encrypt encrypts plaintext for spec.encryption.encryptedSecrets. Each call returns a
// different text. It must not be called on nil or on Keys that are only for SOPS files.
func (k *Keys) Encrypt(plaintext []byte) (string, error) { return k.cipher.seal(plaintext) }

// decrypt returns the secrets of an application by name.
func (k *Keys) decrypt(enc *config.Encryption) (map[string]string, error) {
	secrets := map[string]string{}
	if len(enc.EncryptedSecrets) == 0 {
		return secrets, nil
	}
	if k == nil || k.cipher == nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: spec.encryption: the agent has no keys to decrypt secrets with; "+
			"add secretManagement to its configuration, or remove spec.encryption here", enc.Position)
	}
	var problems []error
	for _, name := range sortedKeys(enc.EncryptedSecrets) {
		plain, err := k.cipher.open(enc.EncryptedSecrets[name])
		if err != nil {
			problems = append(problems, deploy.Errorf(deploy.Invalid, "%s: spec.encryption.encryptedSecrets.%s: %w", enc.Position, name, err))
		}
		secrets[name] = string(plain)
	}
	return secrets, errors.Join(problems...)
}

// Placeholders returns keys that decrypt every ciphertext to the same meaningless text. They
// are for checking templates without the real keys.
func Placeholders() *Keys {
	return &Keys{cipher: placeholders{}, fingerprint: "placeholders", how: sops.Placeholders}
}

// Concealed returns keys that succeed and fail like k but return a placeholder instead of the
// plaintext. The placeholder depends only on the ciphertext. Manifests that are rendered with
// these keys contain no secrets, whatever the templates do. Concealed of nil is nil.
func (k *Keys) Concealed() *Keys {
	if k == nil {
		return nil
	}
	shown := &Keys{fingerprint: "concealed " + k.fingerprint, sops: k.sops, how: max(k.how, sops.Conceal)}
	if k.cipher != nil {
		shown.cipher = concealed{k.cipher}
	}
	return shown
}

type concealed struct{ cryptosystem }

// open returns a hash of the ciphertext. With a hash of the plaintext, anyone who can encrypt
// could verify a guess.
func (c concealed) open(ciphertext string) ([]byte, error) {
	if _, err := c.cryptosystem.open(ciphertext); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(ciphertext)))
	return []byte("redacted-" + hex.EncodeToString(sum[:6])), nil
}

type placeholders struct{}

func (placeholders) open(string) ([]byte, error) { return []byte("placeholder"), nil }
func (placeholders) seal(p []byte) (string, error) {
	return "", errors.New("placeholders encrypt nothing")
}
