package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestPasswordFile: the password for Git is the content of the file without the line break of an
// editor, and only the host that is named gets it.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" t0ken \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := config.Git{Username: "ci", PasswordFile: file, Host: "git.example.com"}
	for remote, want := range map[string]string{
		"https://git.example.com/team/apps.git": " t0ken ", "https://git.example.org/team/apps.git": "", "/srv/apps.git": "",
	} {
		if auth, err := gitAuth(g, remote); err != nil || string(auth.Password) != want {
			t.Errorf("%s: %q, %v", remote, string(auth.Password), err)
		}
	}
	g.PasswordFile += ".missing"
	if _, err := gitAuth(g, "https://git.example.com/team/apps.git"); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("a file that does not exist: %v", err)
	}
}
