package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestDefaultBranch reads the branch of HEAD by each kind of access; git itself made the
// repository.
func TestDefaultBranch(t *testing.T) {
	w := newWorktree(t)
	w.write("file", "content\n")
	first := w.commit("first")
	w.git("checkout", "-q", "-b", "release/next")
	http, err := gittest.ServeHTTP(filepath.Join(w.dir, ".git"), gittest.HTTPOptions{Username: "me", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer http.Close()
	ssh, err := gittest.ServeSSH(filepath.Join(w.dir, ".git"), gittest.SSHOptions{Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer ssh.Close()
	hosts := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(hosts, []byte(ssh.KnownHosts()), 0o600); err != nil {
		t.Fatal(err)
	}
	auth := Auth{Username: "me", Password: "secret", KnownHostsFiles: []string{hosts}}
	for name, remote := range map[string]string{"a directory": w.dir, "HTTP": http.URL, "SSH": ssh.URL} {
		branch, err := DefaultBranch(t.Context(), remote, auth)
		if branch != "release/next" || err != nil {
			t.Errorf("%s: branch %q, %v", name, branch, err)
		}
	}
	if _, err := DefaultBranch(t.Context(), http.URL, Auth{Username: "me", Password: "wrong"}); !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "check user name and password") {
		t.Errorf("a wrong password: %v", err)
	}

	w.git("checkout", "-q", "--detach", first)
	for name, remote := range map[string]string{"a directory": w.dir, "HTTP": http.URL} {
		if _, err := DefaultBranch(t.Context(), remote, auth); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "refers to no branch") {
			t.Errorf("a detached HEAD in %s: %v", name, err)
		}
	}
	if _, err := DefaultBranch(t.Context(), filepath.Join(w.dir, "none"), auth); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("no repository: %v", err)
	}
	if _, err := DefaultBranch(t.Context(), "gopher://host/repo", auth); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("an unsupported scheme: %v", err)
	}
}
