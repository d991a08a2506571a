package app

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/config"
)

// TestScriptIsolation: another user is the last mode to try. It has no access to any
// secret, and a directory that no other agent uses.
func TestScriptIsolation(t *testing.T) {
	cfg := &config.Piped{DataDir: "/var/lib/piped", Git: config.Git{SSHKeyFile: "/etc/piped/id"}, Scripts: config.Scripts{Isolation: config.IsolationAuto}}
	if s := ScriptIsolation(cfg, "/etc/piped/piped.yaml"); !slices.Equal(s.Modes, []sandbox.Mode{sandbox.Namespaces, sandbox.Landlock}) || s.Users.UID != 0 {
		t.Errorf("without a user: %+v", s)
	}
	cfg.Scripts.User = config.ScriptsUser{UID: 64100, Count: 2, Directory: "/srv"}
	s := ScriptIsolation(cfg, "/etc/piped/piped.yaml")
	if !slices.Equal(s.Modes, []sandbox.Mode{sandbox.Namespaces, sandbox.Landlock, sandbox.OtherUser}) {
		t.Errorf("modes %q", s.Modes)
	}
	for _, secret := range []string{"/var/lib/piped", "/etc/piped/id", "/etc/piped/piped.yaml", serviceAccountToken} {
		if !slices.Contains(s.Users.Hidden, secret) {
			t.Errorf("%s may be open to scripts: %q", secret, s.Users.Hidden)
		}
	}
	if dir := s.Users.Dir; filepath.Dir(dir) != "/srv" || !strings.HasPrefix(filepath.Base(dir), "piped-scripts-") || dir == scriptDir("/srv", "/var/lib/other") {
		t.Errorf("directory %s", dir)
	}
	cfg.Scripts.Isolation = config.IsolationUser
	if s := ScriptIsolation(cfg, ""); !slices.Equal(s.Modes, []sandbox.Mode{sandbox.OtherUser}) || slices.Contains(s.Users.Hidden, "") {
		t.Errorf("user alone: %+v", s)
	}
}
