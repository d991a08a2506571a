package git

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/c785c783/piped/piped/git/gittest"
)

// The test sets environment variables and so is not parallel.
func TestTheUsersOwnKeysAndKnownHostsAreUsed(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	private, public := userKey(t)
	s := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	home := t.TempDir()
	t.Setenv("HOME", home)
	put := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, ".ssh", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("known_hosts", s.KnownHosts())
	if _, err := open(t, s.URL).RemoteHead(t.Context()); err == nil {
		t.Error("logged in without a key")
	}
	put("id_rsa", "not a key")
	put("id_ed25519", string(private))
	mustSync(t, open(t, s.URL), hash, true)

	if err := os.Remove(filepath.Join(home, ".ssh", "id_ed25519")); err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKey([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	keys := agent.NewKeyring()
	if err := keys.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSH_AUTH_SOCK", serveAgent(t, keys))
	mustSync(t, open(t, s.URL), hash, true)
}

func serveAgent(t *testing.T, keys agent.Agent) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wait.Go(func() {
				_ = agent.ServeAgent(keys, conn) // until the client goes
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wait.Wait()
		_ = os.RemoveAll(dir)
	})
	return socket
}
