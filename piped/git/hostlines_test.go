package git

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestFindHostLines: the lines of a file are taken, else those of the key that the host shows; with
// them the host is known.
func TestFindHostLines(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	repo := gittest.New(t)
	want := repo.Push(t, "first", map[string]string{"file": "content"})
	private, public, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	server := repo.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	fingerprints := map[string]bool{}
	for line := range strings.Lines(server.KnownHosts()) {
		_, _, key, _, _, err := ssh.ParseKnownHosts([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		fingerprints[ssh.FingerprintSHA256(key)] = true
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		file  string
		shown bool
	}{"known": {server.KnownHostsFile(t), false}, "unknown": {none, true}} {
		lines, err := FindHostLines(t.Context(), server.URL, []string{c.file})
		if err != nil || (lines.Shown != "") != c.shown || c.shown && !fingerprints[lines.Shown] {
			t.Errorf("%s: %+v, %v", name, lines, err)
		}
		for remote, want := range map[string]bool{server.URL: true, "git@git.example.com:apps.git": false} {
			if known, err := Knows(remote, lines.Text); known != want || err != nil {
				t.Errorf("%s: %s is known: %t, %v", name, remote, known, err)
			}
		}
		file := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(file, []byte(lines.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		auth := Auth{SSHKey: Secret(private), KnownHostsFiles: []string{file}}
		if head, err := BranchHead(t.Context(), server.URL, "main", auth); head != want || err != nil {
			t.Errorf("%s: the branch is at %q, %v", name, head, err)
		}
		if _, err := BranchHead(t.Context(), server.URL, "other", auth); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "has no branch other") {
			t.Errorf("%s: a branch that does not exist: %v", name, err)
		}
	}
	if _, err := BranchHead(t.Context(), server.URL, "main", Auth{SSHKey: Secret(private), KnownHostsFiles: []string{none}}); !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("an unknown host: %v", err)
	}
	for _, remote := range []string{"https://git.example.com/apps.git", "/srv/apps.git"} {
		if _, err := FindHostLines(t.Context(), remote, nil); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: %v", remote, err)
		}
	}
	if _, err := FindHostLines(t.Context(), "ssh://git@127.0.0.1:1/apps.git", []string{none}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("a host that does not answer: %v", err)
	}
}
