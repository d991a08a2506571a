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
	"errors"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// KeyPair returns keys for PipeCD's envelope format. private is an RSA private key in PEM
// (PKCS #8 or PKCS #1), public its public key in PEM (PKIX). Errors are of kind Invalid.
func KeyPair(private, public strict.Secret) (*Keys, error) {
	key, err := privateKey(private.Reveal())
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.secretManagement: private key: %w", err)
	}
	own, err := publicKey(public.Reveal())
	if err == nil && !key.PublicKey.Equal(own) {
		err = errors.New("it does not belong to the private key")
	}
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.secretManagement: public key: %w", err)
	}
	text, err := publicText(&key.PublicKey)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.secretManagement: public key: %w", err)
	}
	return newKeys(keyPair{key}, deploy.AgentEncryption{Type: string(config.SecretManagementKeyPair), PublicKey: text}, x509.MarshalPKCS1PublicKey(&key.PublicKey)), nil
}

func privateKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("expected a PEM block PRIVATE KEY")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if rsaKey, ok := key.(*rsa.PrivateKey); err == nil && ok {
		return rsaKey, nil
	}
	return nil, errors.New("expected an RSA key in PKCS #8 (the content is not shown); openssl genrsa makes one")
}

func publicKey(text string) (*rsa.PublicKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("expected a PEM block PUBLIC KEY")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if rsaKey, ok := key.(*rsa.PublicKey); err == nil && ok {
		return rsaKey, nil
	}
	return nil, errors.New("expected an RSA key in PKIX; openssl rsa -pubout makes it of the private key")
}

// publicText returns a public key in PEM (PKIX), the format of PipeCD's clients.
func publicText(key *rsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), err
}

// keyPair implements cryptosystem for PipeCD's envelope, which is the format of Bitnami's
// sealed-secrets without a label:
//
//	base64(length uint16, big endian | RSA-OAEP(SHA-256) of a fresh AES key | AES-256-GCM)
//
// The nonce is zero, which is safe because each AES key encrypts only one text.
type keyPair struct{ key *rsa.PrivateKey }

const sessionKeySize = 32

var errNotDecrypted = errors.New("cannot be decrypted with the agent's key: " +
	"it was encrypted for another one, or is damaged; encrypt the secret anew with the agent's public key")

func (k keyPair) open(text string) ([]byte, error) {
	envelope, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("expected base64 text, as encrypting with the agent's public key gives it")
	}
	if len(envelope) < 2 {
		return nil, errNotDecrypted
	}
	size, rest := int(binary.BigEndian.Uint16(envelope)), envelope[2:]
	if size > len(rest) {
		return nil, errNotDecrypted
	}
	session, err := rsa.DecryptOAEP(sha256.New(), nil, k.key, rest[:size], nil)
	if err != nil || len(session) != sessionKeySize {
		return nil, errNotDecrypted
	}
	gcm := sessionCipher(session)
	plain, err := gcm.Open(nil, make([]byte, gcm.NonceSize()), rest[size:], nil)
	if err != nil {
		return nil, errNotDecrypted
	}
	return plain, nil
}

func (k keyPair) seal(plaintext []byte) (string, error) {
	session := make([]byte, sessionKeySize)
	rand.Read(session) // never fails
	sealed, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, &k.key.PublicKey, session, nil)
	if err != nil {
		return "", err
	}
	envelope := binary.BigEndian.AppendUint16(nil, uint16(len(sealed)))
	envelope = append(envelope, sealed...)
	gcm := sessionCipher(session)
	return base64.StdEncoding.EncodeToString(gcm.Seal(envelope, make([]byte, gcm.NonceSize()), plaintext, nil)), nil
}

// sessionCipher returns AES-GCM with a key. It panics on an invalid key size.
func sessionCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return gcm
}
