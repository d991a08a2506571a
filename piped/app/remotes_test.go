package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/git"
)

// TestCredentialsOfRemotes: a host gets the agent's credentials only if it has a
// repository, or git.host names it.
func TestCredentialsOfRemotes(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("charts"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := func(host string) *config.Piped {
		return &config.Piped{
			Git: config.Git{Username: "bot", Password: strict.NewSecret("pass"), KnownHostsFile: "known", Host: host, HostName: host, RemoteHosts: []string{"bases.example.com"}},
			Repositories: []config.Repository{
				{Remote: "https://apps.example.com:8443/a.git"}, {Remote: "git@apps.example.com:b.git"}, {Remote: "http://plain.example.com/c"}, {Remote: "/srv/d.git"},
			},
			ChartRepositories: []config.ChartRepository{
				{GitRemote: "git@charts.example.com:charts.git", SSHKeyFile: key}, {GitRemote: "git@lost.example.com:x.git", SSHKeyFile: key + ".gone"}, {Address: "https://charts.example.com"},
			},
		}
	}
	r := planRemotes(cfg(""))
	hosts := []string{"bases.example.com", "apps.example.com:8443", "apps.example.com", "http://plain.example.com", "charts.example.com", "lost.example.com"}
	if diff := cmp.Diff(hosts, r.hosts); diff != "" {
		t.Errorf("hosts: -want +got:\n%s", diff)
	}
	known := []string{"known"}
	credentials := git.Auth{Username: "bot", Password: "pass", KnownHostsFiles: known}
	for remote, want := range map[string]git.Auth{
		"https://apps.example.com/base":       credentials,
		"git@plain.example.com:base":          credentials,
		"https://bases.example.com/base":      {KnownHostsFiles: known},
		"ssh://git@charts.example.com/charts": {SSHKey: "charts", KnownHostsFiles: known},
	} {
		got, err := r.auth(remote)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got:\n%s", remote, err, diff)
		}
	}
	if _, err := r.auth("git@lost.example.com:x.git"); err == nil {
		t.Error("a key that cannot be read is no error")
	}
	if got, _ := planRemotes(cfg("bases.example.com")).auth("https://bases.example.com/base"); got.Password != "pass" {
		t.Error("the host that git.host names sees no credentials")
	}
	if !r.same(planRemotes(cfg(""))) || r.same(planRemotes(cfg("bases.example.com"))) {
		t.Error("same does not distinguish equal remotes from others")
	}
}
