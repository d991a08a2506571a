package sops

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
	agearmor "filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

// Keys decrypts the data keys of SOPS files. It is immutable.
type Keys struct {
	age         []age.Identity
	pgp         openpgp.EntityList
	fingerprint string
}

// NewKeys returns keys from age identities and a PGP keyring; either may be empty. The keyring
// has private keys in one or more blocks of ASCII armor. passphrase decrypts all PGP keys that
// have one. Fingerprint returns a hash of name. Errors do not reveal the keys.
func NewKeys(identities []age.Identity, keyring, passphrase, name string) (*Keys, error) {
	sum := sha256.Sum256([]byte(name))
	k := &Keys{age: identities, fingerprint: hex.EncodeToString(sum[:])}
	const begin = "-----BEGIN PGP"
	if keyring != "" && !strings.Contains(keyring, begin) {
		return nil, errors.New("expected a PGP private key in ASCII armor, as gpg --export-secret-keys --armor writes it (the content is not shown)")
	}
	for i, block := range strings.Split(keyring, begin) {
		if i == 0 {
			continue
		}
		list, err := openpgp.ReadArmoredKeyRing(strings.NewReader(begin + block))
		if err != nil {
			return nil, errors.New("the PGP key cannot be read; export it with gpg --export-secret-keys --armor (the content is not shown)")
		}
		k.pgp = append(k.pgp, list...)
	}
	for _, e := range k.pgp {
		if e.PrivateKey == nil {
			return nil, fmt.Errorf("PGP key %X is not private; export it with gpg --export-secret-keys --armor", e.PrimaryKey.Fingerprint)
		}
		if err := e.DecryptPrivateKeys([]byte(passphrase)); err != nil {
			return nil, fmt.Errorf("PGP key %X has a passphrase, and it is not the one of the agent's configuration", e.PrimaryKey.Fingerprint)
		}
	}
	return k, nil
}

// Fingerprint identifies the keys without revealing them; "" for nil.
func (k *Keys) Fingerprint() string {
	if k == nil {
		return ""
	}
	return k.fingerprint
}

const keySize = 32

// NoKeyError is the error for a file that none of the keys can decrypt.
type NoKeyError struct{ text string }

// Error implements error.
func (e *NoKeyError) Error() string { return e.text }

// Sealed returns true. It lets other packages detect the error without importing this one.
func (e *NoKeyError) Sealed() bool { return true }

// dataKey decrypts the data key of a file. It returns a *NoKeyError if the keys are not
// sufficient.
func (k *Keys) dataKey(md metadata) (dataKey, error) {
	var parts [][]byte
	var others []string
	for _, g := range md.groups {
		part, ok := k.part(g)
		if ok {
			parts = append(parts, part)
		}
		others = append(others, g.others...)
	}
	var key []byte
	switch {
	case len(md.groups) == 1 && len(parts) == 1:
		key = parts[0]
	case len(md.groups) > 1 && len(parts) > 1 && len(parts) >= md.threshold:
		key = combine(parts)
	default:
		slices.Sort(others)
		if others = slices.Compact(others); len(others) > 0 {
			return nil, &NoKeyError{fmt.Sprintf("none of the agent's SOPS keys opens it, and keys of %s are not used: add an age or PGP recipient of the agent to it, with sops updatekeys or sops rotate", strings.Join(others, ", "))}
		}
		return nil, &NoKeyError{"none of the agent's SOPS keys opens it: add a recipient of the agent to it, with sops updatekeys or sops rotate"}
	}
	if len(key) != keySize {
		return nil, errors.New("its data key is damaged")
	}
	return key, nil
}

// part decrypts a group's part of the data key, which is the whole key if there is one group. It
// returns false if no key matches.
func (k *Keys) part(g group) ([]byte, bool) {
	for _, text := range g.age {
		if len(k.age) == 0 {
			break
		}
		in, err := age.Decrypt(agearmor.NewReader(strings.NewReader(text)), k.age...)
		if err != nil {
			continue
		}
		if part, err := io.ReadAll(io.LimitReader(in, maxPart)); err == nil {
			return part, true
		}
	}
	for _, text := range g.pgp {
		if len(k.pgp) == 0 {
			break
		}
		block, err := armor.Decode(strings.NewReader(text))
		if err != nil {
			continue
		}
		message, err := openpgp.ReadMessage(block.Body, k.pgp, nil, nil)
		if err != nil {
			continue
		}
		if part, err := io.ReadAll(io.LimitReader(message.UnverifiedBody, maxPart)); err == nil {
			return part, true
		}
	}
	return nil, false
}

// maxPart is the maximum size of a part of a data key in bytes.
const maxPart = 1 << 10

// combine reconstructs the secret from the parts of Shamir's secret sharing over GF(256). The
// last byte of each part is its x coordinate. It returns nil for invalid parts.
func combine(parts [][]byte) []byte {
	size := len(parts[0]) - 1
	var xs []byte
	for _, part := range parts {
		if len(part) != size+1 || bytes.IndexByte(xs, part[size]) >= 0 || part[size] == 0 {
			return nil
		}
		xs = append(xs, part[size])
	}
	out := make([]byte, size)
	for i, part := range parts {
		weight := byte(1) // the Lagrange coefficient of the part at x = 0
		for j, x := range xs {
			if j != i {
				weight = multiply(weight, multiply(x, inverse(x^xs[i])))
			}
		}
		for at := range out {
			out[at] ^= multiply(part[at], weight)
		}
	}
	return out
}

// multiply multiplies in GF(256) with the polynomial of AES.
func multiply(a, b byte) (product byte) {
	for ; b > 0; b >>= 1 {
		product ^= a * (b & 1)
		a = a<<1 ^ 0x1b*(a>>7)
	}
	return product
}

// inverse returns the multiplicative inverse of a in GF(256), which is a to the power 254.
func inverse(a byte) byte {
	out := byte(1)
	for range 254 {
		out = multiply(out, a)
	}
	return out
}
