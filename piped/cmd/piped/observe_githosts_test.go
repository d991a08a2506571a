package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/starter"
)

// TestGitHostsOfAnObserver: the file of --git-hosts is the list gitHosts of the configuration, with
// paths relative to the file. What an agent would refuse is refused.
func TestGitHostsOfAnObserver(t *testing.T) {
	machine(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "git-hosts.yaml")
	read := func(text string) (*config.Piped, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := starter.Observation{GitHosts: file}.Complete()
		if err != nil {
			return nil, err
		}
		cfg, _, err := parsed(o)()
		return cfg, err
	}
	cfg, err := read(`
- host: github.com
  type: GITHUB
  tokenFile: token
  workloads:
    repositories: [shop/*]
    images: [{image: 'registry.example.com/(?P<name>[a-z"<&>]+):(?P<commit>.+)', repository: "shop/${name}"}]
- {host: git.example.com, type: GITHUB, app: {appID: 1, privateKeyFile: app.pem}, workloads: {repositories: ["a/b"]}}
- {host: gitlab.example.com, type: GITLAB, tokenFile: /etc/token}
`)
	if err != nil {
		t.Fatal(err)
	}
	hosts := cfg.GitHosts
	if hosts[0].TokenFile != filepath.Join(dir, "token") || hosts[1].App.PrivateKeyFile != filepath.Join(dir, "app.pem") || hosts[2].TokenFile != "/etc/token" {
		t.Errorf("the files are %s, %s and %s", hosts[0].TokenFile, hosts[1].App.PrivateKeyFile, hosts[2].TokenFile)
	}
	if name, commit, ok := hosts[0].Workloads.Source("registry.example.com/we<b:abcdef1"); name != "shop/we<b" || commit != "abcdef1" || !ok {
		t.Errorf("the image is of %s, commit %s, %t", name, commit, ok)
	}
	if !hosts[0].Workloads.Allows("shop/web") || hosts[1].Workloads.Allows("shop/web") || hosts[2].Workloads != nil {
		t.Errorf("the hosts are %+v", hosts)
	}
	for text, says := range map[string]string{
		"host: github.com": "expected a list",
		"- {host: github.com, type: GITHUB, token: a, workloads: {}}":                        "spec.gitHosts[0].workloads.repositories: required",
		"- {host: github.com, type: GITHUB, token: a, workload: {}}":                         "unknown field",
		"- {host: github.com, type: GITHUB, token: a, workloads: {repositories: [shop]}}\n#": "pattern such as shop/*",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if _, err := (starter.Observation{GitHosts: filepath.Join(dir, "none")}).Complete(); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("no file: %v", err)
	}
}
