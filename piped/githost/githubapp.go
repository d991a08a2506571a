package githost

import (
	"context"
	"crypto/rsa"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/golang-jwt/jwt/v4"
	"github.com/google/go-github/v60/github"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// gitHubApp authenticates as a GitHub App: for each repository as the installation that
// has access to it. Installation tokens, which expire after an hour, are requested on
// demand and renewed before they expire.
type gitHubApp struct {
	id     int64
	given  int64 // configured installation for all repositories; 0: looked up by repository
	key    *rsa.PrivateKey
	base   *url.URL
	http   *http.Client
	client *github.Client // authenticated as the App itself

	mu            sync.Mutex
	found         map[string]int64         // installations by repository
	installations map[int64]*github.Client // by ID
}

func newGitHubApp(c config.GitHubApp, key strict.Secret, base *url.URL, client *http.Client) (*gitHubApp, error) {
	private, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(key.Reveal()))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the private key of GitHub App %d is not an RSA key in PEM format; use the file that GitHub generated for the App", c.AppID)
	}
	a := &gitHubApp{
		id: c.AppID, given: c.InstallationID, key: private, base: base, http: client,
		found: map[string]int64{}, installations: map[int64]*github.Client{},
	}
	a.client = a.through(ghinstallation.NewAppsTransportFromPrivateKey(client.Transport, c.AppID, private))
	return a, nil
}

// through returns a client that uses a transport.
func (a *gitHubApp) through(transport http.RoundTripper) *github.Client {
	client := *a.http
	client.Transport = transport
	c := github.NewClient(&client)
	c.BaseURL = a.base
	return c
}

// of returns the client with the tokens of the installation for a repository, which it
// creates once.
func (a *gitHubApp) of(ctx context.Context, owner, name string) (*github.Client, error) {
	id, err := a.installation(ctx, owner, name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.installations[id] == nil {
		a.installations[id] = a.through(&installation{app: a, id: id})
	}
	return a.installations[id], nil
}

// installation returns the ID of the installation for a repository.
func (a *gitHubApp) installation(ctx context.Context, owner, name string) (int64, error) {
	if a.given != 0 {
		return a.given, nil
	}
	key := repositoryKey(owner, name)
	a.mu.Lock()
	id, known := a.found[key]
	a.mu.Unlock()
	if known {
		return id, nil
	}
	found, answer, err := a.client.Apps.FindRepositoryInstallation(ctx, owner, name)
	if answer != nil && answer.StatusCode == http.StatusNotFound {
		return 0, deploy.Errorf(deploy.Denied, "GitHub App %d is not installed for the repository; install it there, or correct appID or apiURL", a.id)
	}
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found[key] = found.GetID()
	return found.GetID(), nil
}

// repositoryKey normalizes a repository's name, which is case-insensitive.
func repositoryKey(owner, name string) string { return strings.ToLower(owner + "/" + name) }

// failed drops the cached installation of a repository if it gets no token: the App may
// have been reinstalled.
func (a *gitHubApp) failed(owner, name string, err error) {
	var denied *deploy.Error
	if !errors.As(err, &denied) || denied.Kind != deploy.Denied {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.found, repositoryKey(owner, name))
}

func (a *gitHubApp) account(ctx context.Context) (string, error) {
	me, _, err := a.client.Apps.Get(ctx, "")
	return me.GetSlug() + "[bot]", err
}

// installation is a transport that adds the token of one installation.
type installation struct {
	app *gitHubApp
	id  int64

	mu      sync.Mutex
	current *ghinstallation.Transport
}

// RoundTrip sends a request with a token. A token that GitHub rejects, for example after
// the App's permissions changed, is replaced once.
func (i *installation) RoundTrip(r *http.Request) (*http.Response, error) {
	tokens := i.tokens(nil)
	res, err := roundTrip(tokens, r)
	if err != nil || res.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return res, err
	}
	again := r.Clone(r.Context())
	if r.Body != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return res, nil
		}
	}
	res.Body.Close()
	return roundTrip(i.tokens(tokens), again)
}

// tokens returns the token source, a new one if the current one is refused.
func (i *installation) tokens(refused *ghinstallation.Transport) *ghinstallation.Transport {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == refused {
		app := ghinstallation.NewAppsTransportFromPrivateKey(i.app.http.Transport, i.app.id, i.app.key)
		i.current = ghinstallation.NewFromAppsTransport(app, i.id)
		i.current.BaseURL = strings.TrimSuffix(i.app.base.String(), "/")
	}
	return i.current
}

// roundTrip sends a request with an installation token. If GitHub issues none, the
// error explains why; its kind is deploy.Denied for a missing installation or a wrong
// key.
func roundTrip(tokens *ghinstallation.Transport, r *http.Request) (*http.Response, error) {
	res, err := tokens.RoundTrip(r)
	var failed *ghinstallation.HTTPError
	if !errors.As(err, &failed) || failed.Response == nil {
		return res, err
	}
	defer failed.Response.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(failed.Response.Body, maxAnswer)) // a read error only truncates the message
	said, status := message(data), failed.Response.StatusCode
	if err := limitedBy(status, failed.Response.Header, said); err != nil {
		return nil, err
	}
	if status == http.StatusNotFound || status == http.StatusUnauthorized || status == http.StatusForbidden {
		return nil, deploy.Errorf(deploy.Denied, "GitHub issues App %d no token for installation %d (status %d: %s); check that it is still installed and that the private key belongs to appID",
			tokens.AppID(), tokens.InstallationID(), status, said)
	}
	return nil, refusedBy(status, said)
}
