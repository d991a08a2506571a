package config

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// GitHost is one entry of spec.gitHosts: how the API of a service that hosts Git
// repositories is reached, and what is reported to it.
type GitHost struct {
	// Host is the unique host of the remotes, such as `github.com`.
	// Required.
	Host string `yaml:"host"`
	// Type is the kind of API. `GITEA` is Forgejo, too.
	// Required.
	Type GitHostType `yaml:"type"`
	// APIURL is the address of the API, such as `https://git.example.com/api/v4`.
	// Default: the host's own.
	APIURL string `yaml:"apiURL"`
	// Token authorizes the calls. Set one of `token`, `tokenFile` and `app`.
	// Required, or `tokenFile` or `app`.
	Token strict.Secret `yaml:"token"`
	// TokenFile is the file of the token. The agent reads it at the start and when it changes.
	//
	// Load reads whichever of Token, TokenFile and App is set.
	TokenFile string `yaml:"tokenFile"`
	// App is a GitHub App in place of a token.
	App *GitHubApp `yaml:"app"`

	// CommitStatus sets a status of each deployed commit, one for each application.
	CommitStatus bool `yaml:"commitStatus"`
	// ContextPrefix is the first part of the name of these statuses:
	// `<contextPrefix>/<application>`.
	ContextPrefix string `yaml:"contextPrefix"`
	// Deployments shows each deployment as one of GitHub's deployments.
	Deployments bool `yaml:"deployments"`
	// Comments writes one comment into each pull request: first what a merge would deploy, then
	// where the commit is live.
	Comments bool `yaml:"comments"`
	// Workloads sets a status of each commit that a rolled out workload names as its source, without an
	// application and for every tool that deploys it: `<contextPrefix>/<provider>/<namespace>/<workload>`.
	// Default: none.
	Workloads *WorkloadStatuses `yaml:"workloads"`
}

// Default sets what is reported by default: what sends no mail.
func (h *GitHost) Default() { h.CommitStatus, h.ContextPrefix = true, "piped" }

// GitHubApp is a GitHub App as which the agent calls the API.
type GitHubApp struct {
	// AppID is the App's ID.
	// Required in `app`.
	AppID int64 `yaml:"appID"`
	// InstallationID is the installation to use for every repository.
	// Default: that of each repository.
	InstallationID int64 `yaml:"installationID"`
	// PrivateKey is the RSA key (PEM) that GitHub made for the App. Set this or `privateKeyFile`.
	// Required in `app`, or `privateKeyFile`.
	PrivateKey strict.Secret `yaml:"privateKey"`
	// PrivateKeyFile is the file of that key.
	PrivateKeyFile string `yaml:"privateKeyFile"`
}

// GitHostType says whose API a Git host has.
type GitHostType string

// The types of Git hosts. Gitea stands for Forgejo too.
const (
	GitHostGitHub GitHostType = "GITHUB"
	GitHostGitLab GitHostType = "GITLAB"
	GitHostGitea  GitHostType = "GITEA"
)

// Values returns every type.
func (GitHostType) Values() []string {
	return []string{string(GitHostGitHub), string(GitHostGitLab), string(GitHostGitea)}
}

// Load returns the token, or the private key of the App, which is never empty: what
// the field holds, or the content of the file without the white space around it.
// Errors are of kind deploy.Invalid and do not show the content.
func (h GitHost) Load() (strict.Secret, error) {
	switch {
	case h.App != nil && h.App.PrivateKeyFile != "":
		return readSecret(h.App.PrivateKeyFile, strings.TrimSpace, "the private key of the GitHub App for "+h.Host, "write the key into it that GitHub made for the App")
	case h.App != nil:
		return h.App.PrivateKey, nil
	case h.TokenFile == "":
		return h.Token, nil
	}
	return readSecret(h.TokenFile, strings.TrimSpace, "the token of Git host "+h.Host, "write a token into it that may do what the host is used for")
}

// files returns the files that the host's entry names.
func (h GitHost) files() []string {
	files := []string{h.TokenFile}
	if h.App != nil {
		files = append(files, h.App.PrivateKeyFile)
	}
	return files
}

func completeGitHosts(hosts []GitHost, d *strict.Document, r resolver) []GitHost {
	seen := names{d: d}
	for i := range hosts {
		h, at := &hosts[i], fmt.Sprintf("gitHosts[%d]", i)
		seen.add(at, "host", h.Host)
		if h.Type == "" {
			d.Problemf(at+".type", "required; expected %s", strict.Alternatives(h.Type.Values()))
		}
		if token := at + ".token"; d.Has(token) && strings.TrimSpace(h.Token.Reveal()) == "" {
			d.Problemf(token, "expected a token, found an empty text")
		} else {
			exactlyOne(d, field{token, d.Has(token)}, field{at + ".tokenFile", h.TokenFile != ""}, field{at + ".app", h.App != nil})
		}
		h.TokenFile = r.path(at+".tokenFile", h.TokenFile)
		if h.App != nil {
			h.App.complete(d, at+".app", r)
		}
		if h.Type != GitHostGitHub && h.Type != "" {
			unfit(d, "type "+string(h.Type), field{at + ".app", h.App != nil}, field{at + ".deployments", h.Deployments})
		}
		if strings.TrimSpace(h.ContextPrefix) == "" {
			d.Problemf(at+".contextPrefix", "expected a name to be put before those of applications, such as piped, found an empty text")
		}
		if h.Workloads != nil {
			h.Workloads.complete(d, at+".workloads", h.Type)
		}
		h.APIURL = strings.TrimRight(h.APIURL, "/")
		if h.APIURL == "" {
			h.APIURL = h.defaultAPI()
		} else if u, err := url.Parse(h.APIURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			d.Problemf(at+".apiURL", "expected a URL such as %s, found %q", GitHost{Host: "git.example.com", Type: h.Type}.defaultAPI(), h.APIURL)
		}
	}
	return hosts
}

func (a *GitHubApp) complete(d *strict.Document, at string, r resolver) {
	if a.AppID <= 0 {
		d.Problemf(at+".appID", "required; expected the App's ID, a number above 0 that GitHub shows on the App's page")
	}
	if a.InstallationID < 0 {
		d.Problemf(at+".installationID", "expected a number above 0, or nothing for the installation of each repository to be found")
	}
	if key := at + ".privateKey"; d.Has(key) && strings.TrimSpace(a.PrivateKey.Reveal()) == "" {
		d.Problemf(key, "expected a private key, found an empty text")
	} else {
		exactlyOne(d, field{key, d.Has(key)}, field{at + ".privateKeyFile", a.PrivateKeyFile != ""})
	}
	a.PrivateKeyFile = r.path(at+".privateKeyFile", a.PrivateKeyFile)
}

// defaultAPI returns where the host's own API is.
func (h GitHost) defaultAPI() string {
	switch {
	case h.Type == GitHostGitHub && h.Host == "github.com":
		return "https://api.github.com"
	case h.Type == GitHostGitHub:
		return "https://" + h.Host + "/api/v3"
	case h.Type == GitHostGitLab:
		return "https://" + h.Host + "/api/v4"
	}
	return "https://" + h.Host + "/api/v1"
}
