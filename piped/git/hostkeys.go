package git

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys checks one server's host key against known_hosts files.
type hostKeys struct {
	files      []string
	known      ssh.HostKeyCallback
	algorithms []string // to offer: the types of the keys in known_hosts for this host

	refused error // why verify rejected the key, for users
}

// newHostKeys reads those of the files that exist. For an unknown host it offers every safe
// algorithm, so that verify can include the host's key in its error.
func newHostKeys(addr string, files []string) (*hostKeys, error) {
	readable, err := existing(files)
	if err != nil {
		return nil, err
	}
	db, err := knownhosts.NewDB(readable...)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	k := &hostKeys{files: files, known: db.HostKeyCallback(), algorithms: db.HostKeyAlgorithms(addr)}
	slices.Sort(k.algorithms)
	if len(k.algorithms) == 0 {
		k.algorithms = safeHostKeys
	}
	return k, nil
}

// safeHostKeys are the algorithms of host keys that may be new to this machine.
var safeHostKeys = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// existing returns the files that exist.
func existing(files []string) (found []string, err error) {
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			found = append(found, f)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read known hosts: %w", err)
		}
	}
	return found, nil
}

func defaultKnownHosts() []string {
	files := []string{"/etc/ssh/ssh_known_hosts"}
	if home, err := os.UserHomeDir(); err == nil {
		files = append([]string{filepath.Join(home, ".ssh", "known_hosts")}, files...)
	}
	return files
}

// verify implements ssh.HostKeyCallback. It also stores its error in k.refused.
func (k *hostKeys) verify(host string, addr net.Addr, key ssh.PublicKey) error {
	err := k.known(host, addr, key)
	var unknown *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown) && len(unknown.Want) == 0:
		k.refused = fmt.Errorf("the SSH host %s is not known: check that its key is %s, then add this line to %s: %s",
			xknownhosts.Normalize(host), ssh.FingerprintSHA256(key), k.files[0], knownhosts.Line([]string{host}, key))
	case errors.As(err, &unknown):
		k.refused = fmt.Errorf("the SSH host %s shows another key than the known one (%s, now %s): if the host was really given a new key, replace the line at %s",
			xknownhosts.Normalize(host), ssh.FingerprintSHA256(unknown.Want[0].Key), ssh.FingerprintSHA256(key), where(unknown.Want))
	default:
		k.refused = fmt.Errorf("the key of SSH host %s is refused: %w", xknownhosts.Normalize(host), err)
	}
	return k.refused
}

// where lists the file and line of each key.
func where(keys []xknownhosts.KnownKey) string {
	var lines []string
	for _, k := range keys {
		lines = append(lines, fmt.Sprintf("%s:%d", k.Filename, k.Line))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}
