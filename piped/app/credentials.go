package app

import (
	"net/url"
	"os"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

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
			return auth, deploy.Errorf(deploy.Invalid, "spec.git.sshKeyFile: %w", err)
		}
		auth.SSHKey = git.Secret(key)
	}
	if g.PasswordFile != "" {
		password, err := os.ReadFile(g.PasswordFile)
		if err != nil {
			return auth, deploy.Errorf(deploy.Invalid, "spec.git.passwordFile: %w", err)
		}
		auth.Password = git.Secret(strings.TrimRight(string(password), "\r\n"))
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
