package app

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/trigger"
)

// lockDataDir makes the data directory and takes it for this process: two
// agents on one directory would destroy each other's mirrors.
func lockDataDir(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(deploy.Errorf(deploy.Invalid, "another agent uses the data directory %s: stop it, or give this one its own spec.dataDir", dir), file.Close())
	}
	return file.Close, nil
}

// treesOf finds the tree of a commit in the mirror of its repository.
func treesOf(repos []trigger.Repository) source.Tree {
	byID := map[string]*git.Repo{}
	for _, r := range repos {
		byID[r.Config.RepoID] = r.Git
	}
	return func(repoID, commit string) (fs.FS, error) {
		repo := byID[repoID]
		if repo == nil {
			return nil, deploy.Errorf(deploy.Invalid, "repository %q is not in the agent's configuration", repoID)
		}
		return repo.At(commit)
	}
}

// gitAuth returns the credentials for a remote: those of spec.git, unless that
// names another host.
func gitAuth(g config.Git, remote string) (git.Auth, error) {
	var auth git.Auth
	if g.KnownHostsFile != "" {
		auth.KnownHostsFiles = []string{g.KnownHostsFile}
	}
	if host := hostOf(remote); host == "" || g.Host != "" && host != g.Host && host != g.HostName {
		return auth, nil
	}
	auth.Username, auth.Password, auth.SSHKey = g.Username, git.Secret(g.Password.Reveal()), git.Secret(g.SSHKeyData.Reveal())
	if g.SSHKeyFile != "" {
		key, err := os.ReadFile(g.SSHKeyFile)
		if err != nil {
			return auth, fmt.Errorf("spec.git.sshKeyFile: %w", err)
		}
		auth.SSHKey = git.Secret(key)
	}
	return auth, nil
}

// hostOf returns the host of a remote, "" for a path.
func hostOf(remote string) string {
	if u, err := url.Parse(remote); err == nil && u.Scheme != "" {
		return u.Hostname()
	}
	if before, _, ok := strings.Cut(remote, ":"); ok && !strings.Contains(before, "/") {
		return before[strings.LastIndex(before, "@")+1:]
	}
	return ""
}
