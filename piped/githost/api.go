package githost

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// API is the API of one Git host. It is safe for concurrent use. It sends one
// change at a time; looking something up waits for nothing.
//
// A remote is that of a repository as it is fetched from. The kind of an error is
// Invalid when asking again can never succeed: the remote names no repository, or
// the host refuses what it was sent. It is Denied when the host does not accept the
// token, or does not know the repository, which whoever administers it can mend, and
// Unavailable when the host does not answer or has too much to do. When the host
// permits no more calls, errors.As finds an error with a method RetryAt, which says
// until when.
type API struct {
	host string
	hosting

	mu sync.Mutex
	me string // whose comments the caller's are, "" before it is known
}

// hosting is what one kind of host can do. A path is that of a repository on its
// host, such as team/app.
type hosting interface {
	// open opens a pull request and returns its page; of one that is there already,
	// the page of that one.
	open(ctx context.Context, path string, p PullRequest) (page string, err error)
	setStatus(ctx context.Context, path, commit string, s Status) error

	// pullRequest returns one pull request, pullRequestsOf those that brought a
	// commit into the branch it is on.
	pullRequest(ctx context.Context, path string, number int) (Proposed, error)
	pullRequestsOf(ctx context.Context, path, commit string) ([]Proposed, error)

	// account returns the name under which the caller's comments appear.
	account(ctx context.Context) (string, error)
	// comments returns one page of a pull request's comments, counted from 1, and
	// whether there are more.
	comments(ctx context.Context, path string, number, page int) (found []comment, more bool, err error)
	addComment(ctx context.Context, path string, number int, body string) error
	editComment(ctx context.Context, path string, number int, id int64, body string) error
}

// Options are what NewAPI can be told. The zero value is what production uses.
type Options struct {
	// Pause is the least time between two changes at GitHub, which asks for one
	// second; default that.
	Pause time.Duration
}

// apiTimeout bounds one call.
const apiTimeout = 30 * time.Second

// NewAPI returns the API of a configured host. The credential is what c.Load
// returned: a token, or the private key of c.App. The kind of an error is Invalid.
func NewAPI(c config.GitHost, credential strict.Secret, o Options) (*API, error) {
	if o.Pause == 0 {
		o.Pause = time.Second
	}
	if c.Type != config.GitHostGitHub {
		o.Pause = 0
	}
	client := &http.Client{CheckRedirect: stays, Transport: newPaced(http.DefaultTransport, o.Pause)}
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

// at calls do with the path of a repository, and says of its error what was to be
// done.
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
