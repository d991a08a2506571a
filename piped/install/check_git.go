package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

// checkGit reads the head of a branch as the agent would.
func checkGit(ctx context.Context, remote, branch, key, hosts string) (f Finding) {
	shown := git.ShownRemote(remote)
	head, err := branchHead(ctx, remote, branch, key, hosts)
	if err == nil {
		return Finding{"git", OK, fmt.Sprintf("branch %s of %s is at %.8s", branch, shown, head), ""}
	}
	f = Finding{"git", Problem, err.Error(), "check the address and the network from here to it; the pods need the same"}
	public, keyErr := PublicKey([]byte(key))
	switch {
	case deploy.IsKind(err, deploy.Invalid):
		f.Do = "create the branch, or name another with --branch"
	case key != "" && keyErr == nil:
		f.Do = "add this deploy key to the repository, if it is not there: " + public
	case key != "":
		f.Do = keyErr.Error()
	}
	return f
}

// branchHead reads the head of a branch with a key and known hosts.
func branchHead(ctx context.Context, remote, branch, key, hosts string) (head string, err error) {
	auth := git.Auth{Username: "piped", SSHKey: git.Secret(key)}
	if key != "" {
		dir, err := os.MkdirTemp("", "piped-check-")
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file := filepath.Join(dir, "known_hosts")
		if err := os.WriteFile(file, []byte(hosts), 0o600); err != nil {
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
