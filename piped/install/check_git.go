package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

// gitAccess is what an agent reads a repository with.
type gitAccess struct {
	key, hosts         string // over SSH
	username, password string // over HTTP
}

// checkGit reads the head of a branch as the agent would.
func checkGit(ctx context.Context, remote, branch string, a gitAccess) (f Finding) {
	shown := git.ShownRemote(remote)
	head, err := branchHead(ctx, remote, branch, a)
	switch {
	case err == nil && a.password != "" && sentInClear(remote):
		return Finding{"git", Warning, fmt.Sprintf("branch %s of %s is at %.8s, and the password is sent to it unencrypted", branch, shown, head), "use https://, unless the network to the host is yours alone"}
	case err == nil:
		return Finding{"git", OK, fmt.Sprintf("branch %s of %s is at %.8s", branch, shown, head), ""}
	}
	f = Finding{"git", Problem, err.Error(), "check the address and the network from here to it; the pods need the same"}
	public, keyErr := PublicKey([]byte(a.key))
	switch {
	case deploy.IsKind(err, deploy.Invalid):
		f.Do = "create the branch, or name another with --branch"
	case a.key != "" && keyErr == nil:
		f.Do = "add this deploy key to the repository, if it is not there: " + public
	case a.key != "":
		f.Do = keyErr.Error()
	case !git.IsDenied(err):
	case a.password != "":
		f.Do = "check that the password or token of user " + a.username + " is valid, and permits to read the repository: --git-username and --git-password-file replace them"
	default:
		f.Do = "if the repository is private, give --git-username and --git-password-file, or its address over SSH"
	}
	return f
}

// sentInClear reports whether a password for a remote crosses a network without TLS.
func sentInClear(remote string) bool {
	u, err := url.Parse(remote)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.IsLoopback()
}

// branchHead reads the head of a branch.
func branchHead(ctx context.Context, remote, branch string, a gitAccess) (head string, err error) {
	auth := git.Auth{Username: cmp.Or(a.username, "piped"), Password: git.Secret(a.password), SSHKey: git.Secret(a.key)}
	if a.key != "" {
		dir, err := os.MkdirTemp("", "piped-check-")
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file := filepath.Join(dir, "known_hosts")
		if err := os.WriteFile(file, []byte(a.hosts), 0o600); err != nil {
			return "", err
		}
		auth.KnownHostsFiles = []string{file}
	}
	return git.BranchHead(ctx, remote, branch, auth)
}

// KnownHosts returns the known hosts in the Secret of the cluster, "" unless they have the host of a
// remote.
func (i *Installer) KnownHosts(ctx context.Context, remote string) (string, error) {
	s, err := i.getSecret(ctx, GitSecret)
	if err != nil || s == nil {
		return "", err
	}
	text := string(s.Data[keyHosts])
	known, err := git.Knows(remote, text)
	if err != nil || !known {
		return "", err
	}
	return text, nil
}

// HasGitPassword reports whether the Secret of the cluster has the password for a repository over HTTP.
func (i *Installer) HasGitPassword(ctx context.Context) (bool, error) {
	s, err := i.getSecret(ctx, GitSecret)
	if err != nil || s == nil {
		return false, err
	}
	return len(s.Data[keyGitPassword]) > 0, nil
}
