package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"filippo.io/age/armor"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Age returns keys that decrypt age files, armored or in base64, and encrypt to armored ones.
// identities is the output of age-keygen or an SSH private key (Ed25519 or RSA) without a
// passphrase. recipient is the public key of one of the identities. Errors are of kind Invalid.
func Age(identities strict.Secret, recipient string) (*Keys, error) {
	ids, err := ageIdentities(identities.Reveal())
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.secretManagement: identity: %w", err)
	}
	to, err := ageRecipient(strings.TrimSpace(recipient))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.secretManagement.config.recipient: %w", err)
	}
	keys := newKeys(ageFile{ids, to}, deploy.AgentEncryption{Type: string(config.SecretManagementAge), PublicKey: strings.TrimSpace(recipient)}, []byte("age\n"+recipient+"\n"+identities.Reveal()))
	if err := keys.check(); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.secretManagement.config.recipient: it does not belong to the identity; age-keygen -y prints the one that does")
	}
	return keys, nil
}

// check returns an error if the keys cannot decrypt a text that they encrypted.
func (k *Keys) check() error {
	text, err := k.cipher.seal(nil)
	if err == nil {
		_, err = k.cipher.open(text)
	}
	return err
}

func ageIdentities(text string) ([]age.Identity, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN") {
		id, err := agessh.ParseIdentity([]byte(text))
		if err != nil {
			return nil, errors.New("expected an SSH private key without a passphrase, Ed25519 or RSA (the content is not shown)")
		}
		return []age.Identity{id}, nil
	}
	ids, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("expected lines of AGE-SECRET-KEY-1..., as age-keygen writes them (the content is not shown)")
	}
	return ids, nil
}

func ageRecipient(text string) (age.Recipient, error) {
	if strings.HasPrefix(text, "ssh-") {
		to, err := agessh.ParseRecipient(text)
		if err != nil {
			return nil, errors.New("expected an SSH public key, ssh-ed25519 or ssh-rsa, or the age1... of an identity")
		}
		return to, nil
	}
	to, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(to) != 1 {
		return nil, errors.New("expected one age1..., or an SSH public key; age-keygen -y prints the one of an identity")
	}
	return to[0], nil
}

// ageFile implements cryptosystem for the format age-encryption.org/v1.
type ageFile struct {
	identities []age.Identity
	recipient  age.Recipient
}

var errNotAge = errors.New("expected an age file, armored or in base64; age --armor -r <recipient> makes one")

func (f ageFile) open(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	var file io.Reader
	if strings.HasPrefix(text, armor.Header) {
		file = armor.NewReader(strings.NewReader(text))
	} else {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errNotAge
		}
		file = bytes.NewReader(data)
	}
	plain, err := age.Decrypt(file, f.identities...)
	var other *age.NoIdentityMatchError
	if errors.As(err, &other) {
		return nil, errors.New("cannot be decrypted with the agent's identity: it was encrypted for another one; encrypt the secret anew for the agent's recipient")
	}
	if err != nil {
		return nil, errNotAge
	}
	data, err := io.ReadAll(plain)
	if err != nil {
		return nil, errors.New("the age file is damaged; encrypt the secret anew")
	}
	return data, nil
}

func (f ageFile) seal(plaintext []byte) (string, error) {
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, f.recipient)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(plaintext); err != nil {
		return "", err
	}
	if err := errors.Join(w.Close(), armored.Close()); err != nil {
		return "", err
	}
	return out.String(), nil
}
