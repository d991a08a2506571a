package config

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// ChartRepository is a repository of Helm charts.
type ChartRepository struct {
	// Type is how the repository is reached.
	Type ChartRepositoryType `yaml:"type"`

	// Name is what `input.helmChart.repository` and `Chart.yaml` (`@name`) call a repository of
	// type `HTTP`.
	// Required with `HTTP`.
	Name string `yaml:"name"`
	// Address is the URL of a repository of type `HTTP`.
	// Required with `HTTP`.
	Address string `yaml:"address"`
	// Username is sent to the host of `address` only. It needs `password`.
	Username string `yaml:"username"`
	// Password belongs to `username`.
	Password strict.Secret `yaml:"password"`
	// Insecure accepts any TLS certificate.
	Insecure bool `yaml:"insecure"`

	// GitRemote is the remote of a repository of type `GIT`.
	// Required with `GIT`. Type: address.
	GitRemote string `yaml:"gitRemote"`
	// SSHKeyFile is the private key for a remote of type `GIT`.
	SSHKeyFile string `yaml:"sshKeyFile"`
}

// ChartRepositoryType says how a chart repository is reached.
type ChartRepositoryType string

// The types of chart repositories.
const (
	ChartRepositoryHTTP ChartRepositoryType = "HTTP"
	ChartRepositoryGit  ChartRepositoryType = "GIT"
)

// Values returns every type.
func (ChartRepositoryType) Values() []string {
	return []string{string(ChartRepositoryHTTP), string(ChartRepositoryGit)}
}

// ChartRegistry is an OCI registry of Helm charts.
type ChartRegistry struct {
	// Type is the kind of registry.
	Type ChartRegistryType `yaml:"type"`
	// Address is a unique host, or the beginning of charts' names. The longest match counts.
	// Required.
	Address string `yaml:"address"`
	// Username needs `password`.
	Username string `yaml:"username"`
	// Password belongs to `username`.
	Password strict.Secret `yaml:"password"`
}

// ChartRegistryType says what a chart registry speaks.
type ChartRegistryType string

// ChartRegistryOCI is the only type of chart registries.
const ChartRegistryOCI ChartRegistryType = "OCI"

// Values returns every type.
func (ChartRegistryType) Values() []string { return []string{string(ChartRegistryOCI)} }

// Default implements strict.Defaulter.
func (r *ChartRepository) Default() { r.Type = ChartRepositoryHTTP }

// Default implements strict.Defaulter.
func (r *ChartRegistry) Default() { r.Type = ChartRegistryOCI }

// completeChartRepositories checks the repositories of the list at a path; seen are the
// names of those before.
func completeChartRepositories(list string, repos []ChartRepository, seen *names, d *strict.Document, r resolver) []ChartRepository {
	for i := range repos {
		repo, at := &repos[i], fmt.Sprintf("%s[%d]", list, i)
		http := field{at + ".address", repo.Address != ""}
		git := field{at + ".gitRemote", repo.GitRemote != ""}
		switch repo.Type {
		case ChartRepositoryHTTP:
			seen.add(at, "name", repo.Name)
			required(d, http.path, repo.Address)
			unfit(d, "type "+string(repo.Type), git, field{at + ".sshKeyFile", repo.SSHKeyFile != ""})
		case ChartRepositoryGit:
			required(d, git.path, repo.GitRemote)
			unfit(d, "type "+string(repo.Type), http, field{at + ".username", repo.Username != ""},
				field{at + ".password", !repo.Password.IsEmpty()}, field{at + ".insecure", repo.Insecure})
		}
		pair(d, field{at + ".username", repo.Username != ""}, field{at + ".password", !repo.Password.IsEmpty()})
		repo.SSHKeyFile = r.path(at+".sshKeyFile", repo.SSHKeyFile)
	}
	return repos
}

// completeChartRegistries checks the registries of the list at a path; seen are the
// addresses of those before.
func completeChartRegistries(list string, registries []ChartRegistry, seen *names, d *strict.Document) []ChartRegistry {
	for i := range registries {
		registry, at := &registries[i], fmt.Sprintf("%s[%d]", list, i)
		seen.add(at, "address", registry.Address)
		pair(d, field{at + ".username", registry.Username != ""}, field{at + ".password", !registry.Password.IsEmpty()})
	}
	return registries
}

// Charts is spec.charts.
type Charts struct {
	// AllowedHosts are hosts with private addresses that charts may name as the repository of a
	// dependency: `charts.example.com`, or `host:port`. The hosts of `chartRepositories` and
	// `chartRegistries` are always permitted. Public addresses need no entry. The metadata
	// addresses of clouds are never contacted.
	AllowedHosts []string `yaml:"allowedHosts"`
}

func (c Charts) complete(d *strict.Document) Charts {
	for i, host := range c.AllowedHosts {
		u, err := url.Parse("//" + host)
		if err != nil || u.Hostname() == "" || u.User != nil || strings.HasSuffix(u.Host, ":") || u.Host != host {
			d.Problemf(fmt.Sprintf("charts.allowedHosts[%d]", i), "expected a host such as charts.example.com or charts.example.com:8443, found %q", host)
		}
	}
	return c
}
