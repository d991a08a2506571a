package config

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// GitHost is one entry of spec.gitHosts: how the API of a service that hosts Git
// repositories is reached, such as to open pull requests.
type GitHost struct {
	// Host is the host of the remotes that it is for, such as github.com.
	Host string      `yaml:"host"`
	Type GitHostType `yaml:"type"`
	// APIURL is where the API is, without a slash at its end.
	APIURL string `yaml:"apiURL"`
	// Token and TokenFile exclude one another, and one of them is there. Load reads
	// whichever it is.
	Token     strict.Secret `yaml:"token"`
	TokenFile string        `yaml:"tokenFile"`
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

// Load returns the token, which is never empty: what token holds, or the content of
// tokenFile without the white space around it. Errors are of kind deploy.Invalid
// and do not show the content.
func (h GitHost) Load() (strict.Secret, error) {
	if h.TokenFile == "" {
		return h.Token, nil
	}
	return readSecret(h.TokenFile, strings.TrimSpace, "the token of Git host "+h.Host, "write a token into it that may open pull requests")
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
			exactlyOne(d, field{token, d.Has(token)}, field{at + ".tokenFile", h.TokenFile != ""})
		}
		h.TokenFile = r.path(at+".tokenFile", h.TokenFile)
		h.APIURL = strings.TrimRight(h.APIURL, "/")
		if h.APIURL == "" {
			h.APIURL = h.defaultAPI()
		} else if u, err := url.Parse(h.APIURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			d.Problemf(at+".apiURL", "expected a URL such as %s, found %q", GitHost{Host: "git.example.com", Type: h.Type}.defaultAPI(), h.APIURL)
		}
	}
	return hosts
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
