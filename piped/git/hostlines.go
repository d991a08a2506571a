package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/net/proxy"

	"github.com/c785c783/piped/piped/deploy"
)

// HostLines are the lines of a known_hosts file for the host of a remote.
type HostLines struct {
	Text string
	// Shown is the fingerprint of the key that the host showed, if no file has one: it was not
	// compared with what the host publishes. "" if the lines are from the files.
	Shown string
}

// FindHostLines returns the lines for the SSH host of a remote: those of files (nil is the user's
// and the system's), else the key that the host shows now. The error is of kind Invalid if the
// remote is not an address over SSH, else Unavailable.
func FindHostLines(ctx context.Context, remote string, files []string) (h HostLines, err error) {
	a, err := parseAddress(remote)
	if err != nil || a.endpoint.Protocol != "ssh" {
		return h, deploy.Errorf(deploy.Invalid, "%s is not an address over SSH", ShownRemote(remote))
	}
	if len(files) == 0 {
		files = defaultKnownHosts()
	}
	addr := a.sshHost()
	files, err = existing(files)
	if err != nil {
		return h, deploy.Errorf(deploy.Invalid, "%w", err)
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return h, deploy.Errorf(deploy.Invalid, "read known hosts: %w", err)
	}
	for _, key := range db.HostKeys(addr) {
		h.Text += knownhosts.Line([]string{addr}, key) + "\n"
	}
	if h.Text != "" {
		return h, nil
	}
	key, err := shownKey(ctx, addr)
	if err != nil {
		return h, deploy.Errorf(deploy.Unavailable, "read the key of SSH host %s: %w", addr, err)
	}
	return HostLines{knownhosts.Line([]string{addr}, key) + "\n", ssh.FingerprintSHA256(key)}, nil
}

// errSeen ends a connection that was made for the host's key.
var errSeen = errors.New("the host has shown its key")

// shownKey connects to an SSH server until it shows its key.
func shownKey(ctx context.Context, addr string) (key ssh.PublicKey, err error) {
	w := watch(ctx, defaultTimeout)
	defer w.stop()
	conn, err := proxy.Dial(w, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	defer context.AfterFunc(w, func() { _ = conn.Close() })()
	_, _, _, err = ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User: "git", HostKeyAlgorithms: safeHostKeys,
		HostKeyCallback: func(_ string, _ net.Addr, shown ssh.PublicKey) error {
			key = shown
			return errSeen
		},
	})
	switch {
	case key != nil:
		return key, nil
	case w.Err() != nil:
		return nil, fmt.Errorf("no answer: %w", context.Cause(w))
	}
	return nil, err
}

// Knows reports whether lines of a known_hosts file have a key of the SSH host of a remote.
func Knows(remote, lines string) (bool, error) {
	a, err := parseAddress(remote)
	if err != nil {
		return false, deploy.Errorf(deploy.Invalid, "%w", err)
	}
	dir, err := os.MkdirTemp("", "piped-known-hosts-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it contains no secret
	file := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		return false, err
	}
	db, err := knownhosts.NewDB(file)
	if err != nil {
		return false, deploy.Errorf(deploy.Invalid, "read known hosts: %w", err)
	}
	return len(db.HostKeys(a.sshHost())) > 0, nil
}

// sshHost returns the host and port of an address over SSH.
func (a address) sshHost() string {
	return net.JoinHostPort(strings.Trim(a.endpoint.Host, "[]"), strconv.Itoa(cmp.Or(a.endpoint.Port, 22)))
}
