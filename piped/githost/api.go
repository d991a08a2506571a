package githost

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/bounded"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// API is a client of one Git host's API. It is safe for concurrent use. It sends one
// change at a time; reads do not wait.
//
// A remote is the fetch URL of a repository. An error is of kind Invalid if a retry can
// never succeed: the remote names no repository, or the host rejects the request. It is
// Denied if the host does not accept the token or does not know the repository, which an
// administrator can fix, and Unavailable if the host does not answer or is overloaded.
// If the host's rate limit is reached, errors.As finds an error with a method RetryAt,
// which returns when it ends.
type API struct {
	host string
	hosting

	mu sync.Mutex
	me string // account of the caller's comments; "" until it is known
}

// hosting is the API of one kind of host. A path is that of a repository on its host,
// such as team/app.
type hosting interface {
	// open opens a pull request and returns its page, or that of an existing one for
	// the same branches.
	open(ctx context.Context, path string, p PullRequest) (page string, err error)
	setStatus(ctx context.Context, path, commit string, s Status) error
	// commit returns the full hash of what a name stands for: the first characters of a commit's
	// hash, or a branch or tag.
	commit(ctx context.Context, path, name string) (hash string, err error)

	// openPullRequests returns one page of the open pull requests, counted from 1, and
	// whether there are more.
	openPullRequests(ctx context.Context, path string, page int) (found []OpenRequest, more bool, err error)
	// pullRequest returns one pull request; pullRequestsOf returns those that brought a
	// commit into its branch.
	pullRequest(ctx context.Context, path string, number int) (Proposed, error)
	pullRequestsOf(ctx context.Context, path, commit string) ([]Proposed, error)

	// account returns the account name of the caller's comments.
	account(ctx context.Context) (string, error)
	// comments returns one page of a pull request's comments, counted from 1, and
	// whether there are more.
	comments(ctx context.Context, path string, number, page int) (found []comment, more bool, err error)
	addComment(ctx context.Context, path string, number int, body string) error
	editComment(ctx context.Context, path string, number int, id int64, body string) error
}

// Options are for tests; the zero value is for production.
type Options struct {
	// Pause is the minimal time between two changes at GitHub; default one second,
	// which GitHub asks for.
	Pause time.Duration
}

// apiTimeout limits one call.
const apiTimeout = 30 * time.Second

// NewAPI returns the API of a configured host. The credential is the result of c.Load: a
// token, or the private key of c.App. Errors are of kind Invalid.
func NewAPI(c config.GitHost, credential strict.Secret, o Options) (*API, error) {
	if o.Pause == 0 {
		o.Pause = time.Second
	}
	if c.Type != config.GitHostGitHub {
		o.Pause = 0
	}
	client := &http.Client{CheckRedirect: sameHost, Transport: newPaced(bounded.Transport(http.DefaultTransport, maxAnswer), o.Pause)}
	rest := restAPI{url: c.APIURL, token: credential, client: client}
	switch c.Type {
	case config.GitHostGitHub:
		h, err := newGitHub(c, credential, client)
		return &API{host: c.Host, hosting: h}, err
	case config.GitHostGitLab:
		rest.header = "PRIVATE-TOKEN"
		return &API{host: c.Host, hosting: gitLabAPI{rest}}, nil
	case config.GitHostGitea:
		rest.header, rest.scheme = "Authorization", "token "
		return &API{host: c.Host, hosting: giteaAPI{rest}}, nil
	}
	return nil, deploy.Errorf(deploy.Invalid, "Git host type %q is not known; expected %s", c.Type, strict.Alternatives(c.Type.Values()))
}

// Serves reports whether a remote is on the host.
func (a *API) Serves(remote string) bool {
	e, err := transport.NewEndpoint(remote)
	return err == nil && e.Host != "" && strings.EqualFold(e.Host, a.host)
}

// maxRedirects limits the redirects that are followed.
const maxRedirects = 5

// sameHost allows redirects only within the same host and never from HTTPS to HTTP, because
// the token is sent along.
func sameHost(to *http.Request, via []*http.Request) error {
	from := via[len(via)-1].URL
	if len(via) > maxRedirects || to.URL.Host != from.Host || from.Scheme == "https" && to.URL.Scheme != "https" {
		return http.ErrUseLastResponse
	}
	return nil
}

// at calls do with the path of a repository and wraps its error with what was attempted.
func (a *API) at(remote, what string, do func(path string) error) error {
	path, ok := projectPath(remote)
	if !ok {
		return deploy.Errorf(deploy.Invalid, "%s: the remote names no repository of host %s", what, a.host)
	}
	if err := do(path); err != nil {
		return deploy.Errorf(deploy.KindOf(err), "%s of %s: %w", what, a.host+"/"+path, err)
	}
	return nil
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
