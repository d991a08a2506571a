package git

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/crypto/ssh"
)

// Secret is a string that only an explicit conversion shows: formatting, logging and
// encoding give "[redacted]".
type Secret string

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Auth contains the credentials for a remote and the host keys that it may have.
type Auth struct {
	// Username and Password are used over HTTP (basic authentication), and over SSH where the
	// remote names no user or the server asks for a password. Credentials in the URL of the
	// remote take precedence.
	Username string
	Password Secret

	// SSHKey is a private key in PEM or OpenSSH form, without passphrase. Empty
	// means the running ssh agent and the user's default keys.
	SSHKey Secret

	// KnownHostsFiles hold the SSH host keys to trust. Empty means the user's
	// ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts.
	KnownHostsFiles []string
}

// signer parses the configured SSH key. It returns nil if none is configured.
func (a Auth) signer() (ssh.Signer, error) {
	if a.SSHKey == "" {
		return nil, nil
	}
	signer, err := ssh.ParsePrivateKey([]byte(a.SSHKey))
	var missing *ssh.PassphraseMissingError
	if errors.As(err, &missing) {
		return nil, errors.New("the SSH key is protected by a passphrase: give a key without one")
	}
	if err != nil {
		return nil, fmt.Errorf("the SSH key is not a private key in PEM or OpenSSH form: %w", err)
	}
	return signer, nil
}
