package config

import (
	"github.com/c785c783/piped/piped/config/strict"
)

// SecretManagement is spec.secretManagement: how the secrets in Git are
// encrypted. The zero value means that there are none.
type SecretManagement struct {
	Type    SecretManagementType `yaml:"type"`
	KeyPair KeyPair              `yaml:"config"`
}

// SecretManagementType says what encrypts.
type SecretManagementType string

// SecretManagementKeyPair encrypts with a pair of RSA keys.
const SecretManagementKeyPair SecretManagementType = "KEY_PAIR"

// Values returns every type.
func (SecretManagementType) Values() []string { return []string{string(SecretManagementKeyPair)} }

// KeyPair is the config of type KEY_PAIR: one of file and data for each key.
// Keys are decoded: what the file holds in base64 is plain here.
type KeyPair struct {
	PrivateKeyFile string        `yaml:"privateKeyFile"`
	PrivateKeyData strict.Secret `yaml:"privateKeyData"`
	PublicKeyFile  string        `yaml:"publicKeyFile"`
	PublicKeyData  strict.Secret `yaml:"publicKeyData"`
}

func (s SecretManagement) complete(d *strict.Document, r resolver) SecretManagement {
	switch {
	case !d.Has("secretManagement"):
	case s.Type == "":
		d.Problemf("secretManagement.type", "required; expected %s", SecretManagementKeyPair)
	default:
		s.KeyPair.complete(d, r, "secretManagement.config")
	}
	return s
}

func (k *KeyPair) complete(d *strict.Document, r resolver, at string) {
	exactlyOne(d, field{at + ".privateKeyFile", k.PrivateKeyFile != ""}, field{at + ".privateKeyData", !k.PrivateKeyData.IsEmpty()})
	exactlyOne(d, field{at + ".publicKeyFile", k.PublicKeyFile != ""}, field{at + ".publicKeyData", !k.PublicKeyData.IsEmpty()})
	k.PrivateKeyFile, k.PublicKeyFile = r.path(at+".privateKeyFile", k.PrivateKeyFile), r.path(at+".publicKeyFile", k.PublicKeyFile)
	k.PrivateKeyData = base64Secret(d, at+".privateKeyData", k.PrivateKeyData)
	k.PublicKeyData = base64Secret(d, at+".publicKeyData", k.PublicKeyData)
}
