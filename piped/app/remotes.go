package app

import (
	"net/url"
	"os"
	"reflect"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

// remotes are which repositories kustomizations and charts may refer to, and how
// they are reached. It is not changed once made.
type remotes struct {
	git   config.Git
	hosts []string              // as git.Remotes.Allow wants them
	own   []string              // hosts of repositories, for which the agent's credentials are
	keys  map[string]git.Secret // SSH keys by host, of chart repositories in Git
}

// planRemotes returns the remotes that cfg allows: those on hosts of its
// repositories, of its chart repositories in Git, and of git.remoteHosts.
func planRemotes(cfg *config.Piped) (*remotes, error) {
	r := &remotes{git: cfg.Git, hosts: slices.Clone(cfg.Git.RemoteHosts), keys: map[string]git.Secret{}}
	for _, repo := range cfg.Repositories {
		if host := hostOf(repo.Remote); host != "" {
			r.hosts, r.own = append(r.hosts, allowedHost(repo.Remote)), append(r.own, host)
		}
	}
	for _, charts := range cfg.ChartRepositories {
		host := hostOf(charts.GitRemote)
		if host == "" {
			continue
		}
		r.hosts = append(r.hosts, allowedHost(charts.GitRemote))
		if charts.SSHKeyFile == "" {
			continue
		}
		key, err := os.ReadFile(charts.SSHKeyFile)
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "spec.chartRepositories: sshKeyFile: %w", err)
		}
		r.keys[host] = git.Secret(key)
	}
	return r, nil
}

// allowedHost returns the host of a remote with its port, and with http:// in
// front if that is how it is reached.
func allowedHost(remote string) string {
	u, err := url.Parse(remote)
	switch {
	case err != nil || u.Scheme == "":
		return hostOf(remote)
	case u.Scheme == "http":
		return "http://" + u.Host
	}
	return u.Host
}

// auth returns the credentials for a remote. Those of spec.git are only for the
// hosts of repositories and the one that git.host names: that a host may be asked
// does not mean that it may see them.
func (r *remotes) auth(remote string) (git.Auth, error) {
	host, g := hostOf(remote), r.git
	if !slices.Contains(r.own, host) && host != g.Host && host != g.HostName {
		g = config.Git{KnownHostsFile: g.KnownHostsFile}
	}
	auth, err := gitAuth(g, remote)
	if key, ok := r.keys[host]; ok {
		auth.SSHKey = key
	}
	return auth, err
}

func (r *remotes) same(o *remotes) bool { return reflect.DeepEqual(r, o) }
