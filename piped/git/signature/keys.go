package signature

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/c785c783/piped/piped/deploy"
)

// maxKeyFile bounds the size of a key file, in bytes.
const maxKeyFile = 4 << 20

// Keys are the public keys whose signatures are accepted. It is safe for concurrent use.
type Keys struct {
	openPGP openpgp.EntityList
	ssh     []sshKey
	content []byte // of all files, for Equal
}

// Load reads key files: OpenPGP public keys, armored or binary, and SSH keys as lines of an
// allowed signers file or of authorized_keys. Errors are of kind deploy.Invalid and name the
// file and, for SSH keys, the line.
func Load(openPGP, ssh []string) (*Keys, error) {
	k := &Keys{}
	for _, file := range openPGP {
		err := k.read(file, k.addOpenPGP)
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "read the OpenPGP keys in %s: %w", file, err)
		}
	}
	for _, file := range ssh {
		err := k.read(file, k.addSSH)
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "read the SSH keys in %s: %w", file, err)
		}
	}
	return k, nil
}

// read passes the content of a key file to add. It rejects private keys.
func (k *Keys) read(file string, add func([]byte) error) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(data) > maxKeyFile {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", len(data), maxKeyFile)
	}
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return errors.New("it holds a private key; give the public one only")
	}
	k.content = fmt.Appendf(k.content, "%s %d\n%s", file, len(data), data)
	return add(data)
}

// Equal reports whether k and o were read from the same files with the same
// content.
func (k *Keys) Equal(o *Keys) bool {
	return k == o || k != nil && o != nil && bytes.Equal(k.content, o.content)
}

// Verify returns a display name of the key that signed a commit. object is the commit object
// without Git's header. The error, of kind deploy.Invalid, is the reason why none of the keys
// signed the commit. A panic caused by the content of the commit is returned as such an error.
func (k *Keys) Verify(object []byte) (signer string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			signer, err = "", deploy.Errorf(deploy.Invalid, "internal error while reading its signature: %v; please report it with the commit", cause)
		}
	}()
	c, err := parse(object)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%w", err)
	}
	var verify func(commit) (string, error)
	switch {
	case c.signature == "":
		return "", deploy.Errorf(deploy.Invalid, "it is not signed")
	case strings.HasPrefix(c.signature, "-----BEGIN PGP SIGNATURE-----"):
		verify = k.verifyOpenPGP
	case strings.HasPrefix(c.signature, "-----BEGIN SSH SIGNATURE-----"):
		verify = k.verifySSH
	default:
		return "", deploy.Errorf(deploy.Invalid, "its signature is neither one of OpenPGP nor one of SSH")
	}
	if signer, err = verify(c); err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%w", err)
	}
	return signer, nil
}

// day formats a time for users.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
