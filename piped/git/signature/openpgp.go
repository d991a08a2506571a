package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const publicKeyBlock = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

// addOpenPGP reads the keys of a file: one or more armored blocks, or the binary form.
func (k *Keys) addOpenPGP(data []byte) error {
	before := len(k.openPGP)
	parts := bytes.SplitAfter(data, []byte("-----END PGP PUBLIC KEY BLOCK-----"))
	armored := bytes.Contains(data, []byte(publicKeyBlock))
	if !armored {
		parts = [][]byte{data}
	}
	for _, part := range parts {
		if len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		read := openpgp.ReadKeyRing
		if armored {
			read = openpgp.ReadArmoredKeyRing
		}
		entities, err := read(bytes.NewReader(part))
		if err != nil {
			return fmt.Errorf("expected public keys, armored or binary: %w", err)
		}
		k.openPGP = append(k.openPGP, entities...)
	}
	if len(k.openPGP) == before {
		return errors.New("it holds no key that can be used")
	}
	for _, e := range k.openPGP[before:] {
		if e.PrivateKey != nil {
			return errors.New("it holds a private key; give the public one only")
		}
	}
	return nil
}

// strongHashes returns the accepted hash functions of signatures.
func strongHashes() []crypto.Hash {
	return []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}
}

// verifyOpenPGP returns the name and the fingerprint of the key that signed the commit.
func (k *Keys) verifyOpenPGP(c commit) (string, error) {
	packets, sig, err := onlySignature(c.signature)
	if err != nil {
		return "", err
	}
	keys := k.openPGP.KeysByIdUsage(*sig.IssuerKeyId, packet.KeyFlagSign)
	if len(keys) == 0 {
		return "", fmt.Errorf("the key %016X that signed it is not one of those given", *sig.IssuerKeyId)
	}
	// Later self-signatures of the key, such as a new expiry, also apply to earlier commits.
	at := latest(c.at, sig.CreationTime)
	clock := at
	for _, key := range keys {
		clock = latest(clock, statedAt(key))
		if len(key.Entity.Revocations) > 0 || len(key.Revocations) > 0 {
			return "", fmt.Errorf("the key %016X that signed it was revoked", *sig.IssuerKeyId)
		}
	}
	config := &packet.Config{Time: func() time.Time { return clock }}
	_, signer, err := openpgp.VerifyDetachedSignature(k.openPGP, bytes.NewReader(c.payload), bytes.NewReader(packets), config)
	switch {
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
		return "", fmt.Errorf("the key %016X that signed it, or its signature, was not valid at %s, when it was made: %w", *sig.IssuerKeyId, day(at), err)
	case err != nil:
		return "", fmt.Errorf("its signature with the key %016X does not verify: %w", *sig.IssuerKeyId, err)
	}
	return fmt.Sprintf("%s (OpenPGP key %X)", nameOf(signer), signer.PrimaryKey.Fingerprint), nil
}

// onlySignature returns the packets of an armored signature and the one signature in them.
func onlySignature(armored string) (packets []byte, sig *packet.Signature, err error) {
	if strings.Count(armored, "-----BEGIN") != 1 {
		return nil, nil, errSeveral
	}
	block, err := armor.Decode(strings.NewReader(armored))
	if err != nil {
		return nil, nil, fmt.Errorf("its signature cannot be read: %w", err)
	}
	if packets, err = io.ReadAll(block.Body); err != nil {
		return nil, nil, fmt.Errorf("its signature cannot be read: %w", err)
	}
	for reader := packet.NewReader(bytes.NewReader(packets)); ; {
		p, err := reader.Next()
		switch found, ok := p.(*packet.Signature); {
		case errors.Is(err, io.EOF) && sig == nil:
			return nil, nil, errors.New("its signature is empty")
		case errors.Is(err, io.EOF):
			return packets, sig, nil
		case err != nil:
			return nil, nil, fmt.Errorf("its signature cannot be read: %w", err)
		case sig != nil:
			return nil, nil, errSeveral
		case !ok || found.IssuerKeyId == nil || found.SigType != packet.SigTypeBinary:
			return nil, nil, errors.New("its signature is not one over a document, by a named key")
		case !slices.Contains(strongHashes(), found.Hash):
			return nil, nil, fmt.Errorf("its signature is over a weak hash (%s)", found.Hash)
		default:
			sig = found
		}
	}
}

// statedAt returns the time of the newest self-signature of a key, which sets its usage and
// expiry.
func statedAt(key openpgp.Key) (at time.Time) {
	primary, _ := key.Entity.PrimarySelfSignature()
	for _, s := range []*packet.Signature{primary, key.SelfSignature} {
		if s == nil {
			continue
		}
		at = latest(at, s.CreationTime)
		if s.EmbeddedSignature != nil {
			at = latest(at, s.EmbeddedSignature.CreationTime)
		}
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func nameOf(e *openpgp.Entity) string {
	if id := e.PrimaryIdentity(); id != nil {
		return id.Name
	}
	return "an unnamed signer"
}
