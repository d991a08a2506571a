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

// remotes are the repositories that kustomizations and charts may refer to, and their
// credentials. It is immutable.
type remotes struct {
	hosts     []string         // for git.Remotes.Allow
	access    map[string]login // by host
	otherwise login            // of other hosts: without credentials
}

// login contains the credentials for a host, or why there are none.
type login struct {
	auth git.Auth
	err  error
}

// planRemotes returns the remotes that cfg allows: those on hosts of its
// repositories, of its chart repositories in Git, and of git.remoteHosts. The
// credentials of spec.git are only for the first and for git.host: an allowed host need not
// get them.
func planRemotes(cfg *config.Piped) *remotes {
	r := &remotes{hosts: slices.Clone(cfg.Git.RemoteHosts), access: map[string]login{}}
	own := []string{cfg.Git.Host, cfg.Git.HostName}
	for _, repo := range cfg.Repositories {
		r.hosts, own = append(r.hosts, allowedHost(repo.Remote)), append(own, hostOf(repo.Remote))
	}
	for _, host := range own {
		r.access[host] = accessTo(host, cfg.Git)
	}
	r.otherwise = accessTo("", config.Git{KnownHostsFile: cfg.Git.KnownHostsFile})
	for _, charts := range cfg.ChartRepositories {
		r.hosts = append(r.hosts, allowedHost(charts.GitRemote))
		if charts.SSHKeyFile == "" {
			continue
		}
		key, err := os.ReadFile(charts.SSHKeyFile)
		if err != nil {
			err = deploy.Errorf(deploy.Invalid, "spec.chartRepositories: sshKeyFile: %w", err)
		}
		auth := r.otherwise.auth
		auth.SSHKey = git.Secret(key)
		r.access[hostOf(charts.GitRemote)] = login{auth, err}
	}
	r.hosts = slices.DeleteFunc(r.hosts, func(host string) bool { return host == "" })
	delete(r.access, "")
	return r
}

func accessTo(host string, g config.Git) login {
	auth, err := gitAuth(g, "https://"+host)
	return login{auth, err}
}

// allowedHost returns the host of a remote with its port, prefixed with http:// for
// unencrypted remotes; "" for a path.
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

func (r *remotes) auth(remote string) (git.Auth, error) {
	a, ok := r.access[hostOf(remote)]
	if !ok {
		a = r.otherwise
	}
	return a.auth, a.err
}

func (r *remotes) same(o *remotes) bool { return reflect.DeepEqual(r, o) }
