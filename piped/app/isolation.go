package app

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/config"
)

// serviceAccountToken is the file with the agent's credentials for its own cluster.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// ScriptIsolation returns the isolation of scripts by the configuration in a file.
func ScriptIsolation(cfg *config.Piped, file string) sandbox.Settings {
	s := sandbox.Settings{Modes: []sandbox.Mode{sandbox.Mode(cfg.Scripts.Isolation)}, Allow: cfg.Scripts.AllowPaths}
	user := cfg.Scripts.User
	if cfg.Scripts.Isolation == config.IsolationAuto {
		s.Modes = []sandbox.Mode{sandbox.Namespaces, sandbox.Landlock}
		if user.UID != 0 {
			s.Modes = append(s.Modes, sandbox.OtherUser)
		}
	}
	if user.UID != 0 {
		s.Users = sandbox.Users{UID: user.UID, GID: user.GID, Count: user.Count, Dir: scriptDir(user.Directory, cfg.DataDir), Hidden: append(cfg.SecretFiles(), cfg.DataDir, serviceAccountToken)}
		if file != "" {
			s.Users.Hidden = append(s.Users.Hidden, file)
		}
	}
	return s
}

// scriptDir returns the directory for scripts of other users below a directory that all users
// can enter, "" for that of temporary files. Each data directory has its own.
func scriptDir(below, dataDir string) string {
	return filepath.Join(cmp.Or(below, os.TempDir()), fmt.Sprintf("piped-scripts-%.8x", sha256.Sum256([]byte(dataDir))))
}
