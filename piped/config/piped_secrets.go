package config

import (
	"github.com/c785c783/piped/piped/config/strict"
)

// SecretManagement is spec.secretManagement: how the secrets in Git are
// encrypted. The zero value means that there are none.
type SecretManagement struct {
	// Type is how secrets are encrypted: `KEY_PAIR` is PipeCD's, `AGE` is not in PipeCD. With
	// PipeCD's `GCP_KMS` and `AWS_KMS` the agent warns, and refuses applications with encrypted
	// secrets.
	// Required.
	Type SecretManagementType `yaml:"type"`
	// Config depends on `type`.
	//
	// A *KeyPair or *Age, as Type says; nil for the other types.
	Config any `yaml:"config"`
}

// SecretManagementType says what encrypts.
type SecretManagementType string

// The types of secret management.
const (
	// SecretManagementKeyPair encrypts with a pair of RSA keys, as PipeCD does.
	SecretManagementKeyPair SecretManagementType = "KEY_PAIR"
	// SecretManagementAge encrypts to an age recipient.
	SecretManagementAge SecretManagementType = "AGE"
	// SecretManagementGCPKMS and SecretManagementAWSKMS are known, and decrypt nothing.
	SecretManagementGCPKMS SecretManagementType = "GCP_KMS"
	SecretManagementAWSKMS SecretManagementType = "AWS_KMS"
)

// Values returns every type.
func (SecretManagementType) Values() []string {
	return []string{string(SecretManagementKeyPair), string(SecretManagementAge), string(SecretManagementGCPKMS), string(SecretManagementAWSKMS)}
}

// KeyPair is the config of type KEY_PAIR: one of file and data for each key.
// Keys are decoded: what the file holds in base64 is plain here.
type KeyPair struct {
	// PrivateKeyFile is the file of the RSA private key (PEM). Set this or `privateKeyData`.
	// Required, or `privateKeyData`.
	PrivateKeyFile string `yaml:"privateKeyFile"`
	// PrivateKeyData is that key.
	PrivateKeyData strict.Secret `yaml:"privateKeyData"`
	// PublicKeyFile is the file of the public key (PEM) that belongs to it. Set this or
	// `publicKeyData`.
	// Required, or `publicKeyData`.
	PublicKeyFile string `yaml:"publicKeyFile"`
	// PublicKeyData is that key.
	PublicKeyData strict.Secret `yaml:"publicKeyData"`
}

// Age is the config of type AGE: one of file and data for the identity, which is
// what age-keygen writes or an SSH private key. It is decoded: what the file holds
// in base64 is plain here.
type Age struct {
	// IdentityFile is the file that `age-keygen` writes, or an SSH private key without a
	// passphrase. Set this or `identityData`.
	// Required, or `identityData`. Not in PipeCD.
	IdentityFile string `yaml:"identityFile"`
	// IdentityData is the content of that file.
	// Not in PipeCD.
	IdentityData strict.Secret `yaml:"identityData"`
	// Recipient is the public side of the identity: `age1...` or an SSH public key.
	// Required. Not in PipeCD.
	Recipient string `yaml:"recipient"`
}

// Variants implements schema.Varied.
func (s *SecretManagement) Variants() (by string, of map[string]any) {
	return "type", map[string]any{
		string(SecretManagementKeyPair): &KeyPair{},
		string(SecretManagementAge):     &Age{},
	}
}

// Variant implements strict.Variant.
func (s *SecretManagement) Variant() any {
	_, of := s.Variants()
	return of[string(s.Type)]
}

func (s SecretManagement) complete(d *strict.Document, r resolver) SecretManagement {
	if !d.Has("secretManagement") {
		return s
	}
	if s.Config == nil {
		s.Config = s.Variant()
	}
	switch config := s.Config.(type) {
	case *KeyPair:
		config.complete(d, r, "secretManagement.config")
	case *Age:
		config.complete(d, r, "secretManagement.config")
	case nil:
		if s.Type != "" {
			d.Warnf("secretManagement.type", "%s is not supported by this version: applications with encrypted secrets are refused", s.Type)
			return s
		}
		d.Problemf("secretManagement.type", "required; expected %s", strict.Alternatives(s.Type.Values()))
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

func (a *Age) complete(d *strict.Document, r resolver, at string) {
	exactlyOne(d, field{at + ".identityFile", a.IdentityFile != ""}, field{at + ".identityData", !a.IdentityData.IsEmpty()})
	required(d, at+".recipient", a.Recipient)
	a.IdentityFile = r.path(at+".identityFile", a.IdentityFile)
	a.IdentityData = base64Secret(d, at+".identityData", a.IdentityData)
}

// files are those that the config names.
func (s SecretManagement) files() []string {
	switch config := s.Config.(type) {
	case *KeyPair:
		return []string{config.PrivateKeyFile, config.PublicKeyFile}
	case *Age:
		return []string{config.IdentityFile}
	}
	return nil
}
