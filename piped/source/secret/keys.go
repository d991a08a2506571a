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

// Keys decrypt the secrets in Git, and encrypt what is to be put there. They
// never change and are safe for concurrent use.
type Keys struct {
	cipher      cryptosystem // nil when there are only those of SOPS files
	public      deploy.AgentEncryption
	fingerprint string
	sops        *sops.Keys
	how         sops.How
}

// cryptosystem is one way of encrypting. Its errors show neither key nor plaintext.
type cryptosystem interface {
	open(ciphertext string) ([]byte, error)
	seal(plaintext []byte) (string, error)
}

func newKeys(c cryptosystem, public deploy.AgentEncryption, identity []byte) *Keys {
	sum := sha256.Sum256(identity)
	return &Keys{cipher: c, public: public, fingerprint: hex.EncodeToString(sum[:])}
}

// Fingerprint identifies the keys without showing them, whatever way they were
// read; "" for nil.
func (k *Keys) Fingerprint() string {
	if k == nil {
		return ""
	}
	return k.fingerprint
}

// SOPSFingerprint identifies those of the keys that open SOPS files; "" without any.
func (k *Keys) SOPSFingerprint() string {
	if k == nil {
		return ""
	}
	return k.sops.Fingerprint()
}

// LoadKeys reads the keys that the agent's configuration holds or names; nil
// when it has neither secretManagement nor sops. Keys of a type that this version
// has not refuse every secret. Errors are of kind Invalid, and say which field or
// file to correct.
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

// withSOPS returns keys that open SOPS files, too.
func (k *Keys) withSOPS(files *sops.Keys) *Keys {
	both := Keys{}
	if k != nil {
		both = *k
	}
	both.sops, both.fingerprint = files, both.fingerprint+" "+files.Fingerprint()
	return &both
}

// loadKeys reads the keys of secretManagement; nil when there is none.
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

// unsupported is a way of encrypting that this version has not.
type unsupported config.SecretManagementType

func (u unsupported) open(string) ([]byte, error) { return nil, u.err() }

func (u unsupported) seal([]byte) (string, error) { return "", u.err() }

func (u unsupported) err() error {
	return deploy.Errorf(deploy.Invalid, "secretManagement of the agent's configuration is of type %s, which this version of piped cannot decrypt: use %s or %s and encrypt the secret anew",
		string(u), config.SecretManagementKeyPair, config.SecretManagementAge)
}

// keyText returns what a key's file holds, or its data.
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

// Public says how to encrypt what the keys decrypt; the zero value for nil.
func (k *Keys) Public() deploy.AgentEncryption {
	if k == nil {
		return deploy.AgentEncryption{}
	}
	return k.public
}

// Encrypt returns plaintext in the form that spec.encryption.encryptedSecrets
// holds. It is another one at each call.
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

// Placeholders returns keys that take any ciphertext and make the same meaningless
// text of it: templates can be checked with them where the real keys are not.
func Placeholders() *Keys {
	return &Keys{cipher: placeholders{}, fingerprint: "placeholders", how: sops.Placeholders}
}

// Concealed returns keys that open what k opens, refuse what k refuses, and return
// a text that stands for the secret and says nothing of it: the same as long as Git
// holds the same ciphertext. What is rendered with them can be shown to anybody,
// whatever the templates do with a secret. Nil stays nil.
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

// open returns a name for the ciphertext. One made of the plaintext would tell who
// encrypts a guess whether it is right.
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
