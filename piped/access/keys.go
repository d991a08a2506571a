package access

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

// NewAPIKey generates a key with randomness from rand (crypto/rand.Reader). The record
// contains only a hash; key is "<id>.<secret>" and the only copy.
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

// RecordOf returns the record of an existing key.
func RecordOf(key, name, subject string, role deploy.Role, now time.Time) (deploy.APIKey, error) {
	id, ok := IDOf(key)
	if !ok {
		return deploy.APIKey{}, deploy.Errorf(deploy.Invalid, "API key %q is not of the form <id>.<secret>", name)
	}
	return deploy.APIKey{ID: id, Name: name, Subject: subject, Role: role, Hash: hashToken(key), CreatedAt: now}, nil
}

// NewSessionToken generates the ID of a session, the token by which its user is recognised,
// "<id>.<secret>", and the hash of it, which alone is stored. rand is crypto/rand.Reader.
func NewSessionToken(rand io.Reader) (id, token string, hash []byte, err error) {
	random, err := uuid.NewRandomFromReader(rand)
	if err != nil {
		return "", "", nil, fmt.Errorf("make the ID of a session: %w", err)
	}
	secret, err := newSecret(rand)
	if err != nil {
		return "", "", nil, fmt.Errorf("make the secret of a session: %w", err)
	}
	token = random.String() + "." + secret
	return random.String(), token, hashToken(token), nil
}

// newSecret draws characters uniformly: it discards bytes beyond the largest multiple of the
// alphabet's size.
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

// hashToken returns the stored hash of a key or session token. A fast hash suffices: slow ones
// protect secrets chosen by people, and this one has 165 random bits (32 of 36 characters).
func hashToken(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// matches compares a token with a stored hash, in constant time.
func matches(hash []byte, token string) bool {
	return subtle.ConstantTimeCompare(hash, hashToken(token)) == 1
}

// IDOf returns the ID of a key or session token; ok is false unless it is "<id>.<secret>".
func IDOf(token string) (id string, ok bool) {
	id, secret, ok := strings.Cut(token, ".")
	return id, ok && id != "" && secret != "" && !strings.Contains(secret, ".")
}

// Redacted returns a text without its secret if it is a key or session token.
func Redacted(text string) string {
	if id, secret, ok := strings.Cut(text, "."); ok && len(secret) == secretLength && strings.Trim(secret, secretAlphabet) == "" {
		return id + ".[redacted]"
	}
	return text
}
