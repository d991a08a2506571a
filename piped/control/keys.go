package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	secretLength   = 32
	secretAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// NewAPIKey makes a key with randomness from rand (crypto/rand.Reader). The
// record holds only a hash; key is "<id>.<secret>" and is the only copy.
func NewAPIKey(name, subject string, role deploy.Role, now time.Time, rand io.Reader) (record deploy.APIKey, key string, err error) {
	id, err := uuid.NewRandomFromReader(rand)
	if err != nil {
		return deploy.APIKey{}, "", fmt.Errorf("make the ID of API key %q: %w", name, err)
	}
	secret, err := newSecret(rand)
	if err != nil {
		return deploy.APIKey{}, "", fmt.Errorf("make the secret of API key %q: %w", name, err)
	}
	key = id.String() + "." + secret
	record, err = RecordOf(key, name, subject, role, now)
	return record, key, err
}

// RecordOf returns the record of a key that was made earlier.
func RecordOf(key, name, subject string, role deploy.Role, now time.Time) (deploy.APIKey, error) {
	id, ok := keyID(key)
	if !ok {
		return deploy.APIKey{}, deploy.Errorf(deploy.Invalid, "what is given as API key %q is not <id>.<secret>", name)
	}
	return deploy.APIKey{ID: id, Name: name, Subject: subject, Role: role, Hash: hashKey(key), CreatedAt: now}, nil
}

// newSecret draws characters evenly: bytes beyond the largest multiple of the
// alphabet's size are thrown away.
func newSecret(rand io.Reader) (string, error) {
	const limit = 256 - 256%len(secretAlphabet)
	secret := make([]byte, 0, secretLength)
	buf := make([]byte, 1)
	for len(secret) < secretLength {
		if _, err := io.ReadFull(rand, buf); err != nil {
			return "", err
		}
		if int(buf[0]) < limit {
			secret = append(secret, secretAlphabet[int(buf[0])%len(secretAlphabet)])
		}
	}
	return string(secret), nil
}

// hashKey returns what is stored of a key. A fast hash is right here: a slow
// one protects secrets people think up, and this one is random with 165 bits
// (32 of 36 characters), which nobody tries out.
func hashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// matches reports whether key is the one record was made with, in constant
// time.
func matches(record deploy.APIKey, key string) bool {
	return subtle.ConstantTimeCompare(record.Hash, hashKey(key)) == 1
}

// keyID returns the part of a key that names it; ok is false unless the key is
// "<id>.<secret>".
func keyID(key string) (id string, ok bool) {
	id, secret, ok := strings.Cut(key, ".")
	return id, ok && id != "" && secret != "" && !strings.Contains(secret, ".")
}
