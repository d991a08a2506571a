package githost

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// PullRequest is one that is to be opened.
type PullRequest struct {
	Remote string // of the repository, as it is fetched from
	Head   string // the branch to merge
	Base   string // the branch to merge it into
	Title  string
	Body   string
}

// API is the API of one Git host. It is safe for concurrent use.
type API struct {
	host  string
	pulls pulls
}

// pulls is how one kind of host opens pull requests.
type pulls interface {
	// open opens a pull request of the repository at path, such as team/app, and
	// returns its page; of one that is there already, the page of that one.
	open(ctx context.Context, path string, p PullRequest) (page string, err error)
}

// apiTimeout bounds one call.
const apiTimeout = 30 * time.Second

// NewAPI returns the API of a configured host, which takes token as the caller's.
func NewAPI(c config.GitHost, token strict.Secret) (*API, error) {
	client := &http.Client{Timeout: apiTimeout, CheckRedirect: stays}
	rest := restAPI{url: c.APIURL, token: token, client: client}
	switch c.Type {
	case config.GitHostGitHub:
		p, err := newGitHubPulls(rest)
		return &API{c.Host, p}, err
	case config.GitHostGitLab:
		return &API{c.Host, gitLabPulls{rest}}, nil
	case config.GitHostGitea:
		return &API{c.Host, giteaPulls{rest}}, nil
	}
	return nil, deploy.Errorf(deploy.Invalid, "Git host type %q is not known; expected %s", c.Type, strict.Alternatives(c.Type.Values()))
}

// maxRedirects is how often a host may send on to another address.
const maxRedirects = 5

// stays follows a redirect only on the host that it comes from, and never out of
// TLS: the token goes along, and is nobody else's.
func stays(to *http.Request, via []*http.Request) error {
	from := via[len(via)-1].URL
	if len(via) > maxRedirects || to.URL.Host != from.Host || from.Scheme == "https" && to.URL.Scheme != "https" {
		return http.ErrUseLastResponse
	}
	return nil
}

// OpenPullRequest opens a pull request and returns the address of its page. Asked
// again it returns the page of the one that it opened before. The kind is Invalid
// when the host refuses it, or does not know the repository or the token, else
// Unavailable.
func (a *API) OpenPullRequest(ctx context.Context, p PullRequest) (page string, err error) {
	path, ok := projectPath(p.Remote)
	if !ok {
		return "", deploy.Errorf(deploy.Invalid, "open a pull request: the remote names no repository of host %s", a.host)
	}
	page, err = a.pulls.open(ctx, path, p)
	if err != nil {
		return "", deploy.Errorf(deploy.KindOf(err), "open a pull request for branch %s of %s: %w", p.Head, a.host+"/"+path, err)
	}
	return page, nil
}

// projectPath returns the path of a repository on its host, such as team/app.
func projectPath(remote string) (string, bool) {
	e, err := transport.NewEndpoint(remote)
	if err != nil || e.Host == "" {
		return "", false
	}
	path := strings.TrimSuffix(strings.Trim(e.Path, "/"), ".git")
	return path, path != ""
}

// refusedBy is the error for an answer of a host that is not what was asked for.
func refusedBy(status int, message string) error {
	if message = strings.Join(strings.Fields(message), " "); len(message) > 300 {
		message = message[:300]
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return deploy.Errorf(deploy.Invalid, "the host does not accept the token (status %d: %s); give spec.gitHosts one that may open pull requests", status, message)
	case status == http.StatusNotFound:
		return deploy.Errorf(deploy.Invalid, "the host knows no such repository (status 404: %s); check apiURL, and that the token of spec.gitHosts may see it", message)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return deploy.Errorf(deploy.Invalid, "the host sends on to another address (status %d), which is not asked: the token is not for it; set apiURL of spec.gitHosts to where the API is", status)
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return deploy.Errorf(deploy.Unavailable, "the host answers with status %d: %s", status, message)
	}
	return deploy.Errorf(deploy.Invalid, "the host refuses it (status %d: %s)", status, message)
}
