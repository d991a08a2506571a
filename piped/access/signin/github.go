package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// gitHub is github.com or a GitHub Enterprise server with an OAuth app.
type gitHub struct {
	config config.Issuer
	oauth  oauth2.Config
	client *http.Client
	now    func() time.Time

	mu   sync.Mutex
	away error // of the last request
}

func newGitHub(c config.Issuer, secret, callback string, client *http.Client, now func() time.Time) (*gitHub, error) {
	web, err := gitHubWeb(c.APIURL)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "issuer %s: %w", c.Name, err)
	}
	return &gitHub{
		config: c, client: client, now: now,
		oauth: oauth2.Config{
			ClientID: c.ClientID, ClientSecret: secret, RedirectURL: callback, Scopes: c.Scopes,
			Endpoint: oauth2.Endpoint{
				AuthURL: web + "/login/oauth/authorize", TokenURL: web + "/login/oauth/access_token",
				DeviceAuthURL: web + "/login/device/code", AuthStyle: oauth2.AuthStyleInParams,
			},
		},
	}, nil
}

// gitHubWeb returns the address of the pages that belong to an API: https://github.com for
// https://api.github.com, and https://HOST for https://HOST/api/v3.
func gitHubWeb(api string) (string, error) {
	u, err := url.Parse(api)
	if err != nil {
		return "", fmt.Errorf("apiURL: %w", err)
	}
	host := u.Host
	switch {
	case u.Path == "" || u.Path == "/":
		host = strings.TrimPrefix(host, "api.") // github.com, and enterprises at ghe.com
	case strings.Trim(u.Path, "/") != "api/v3":
		return "", fmt.Errorf("apiURL: expected https://api.github.com or https://HOST/api/v3, found %q", api)
	}
	return u.Scheme + "://" + host, nil
}

// Name implements Issuer.
func (g *gitHub) Name() string { return g.config.Name }

func (g *gitHub) same(other Issuer) bool {
	o, ok := other.(*gitHub)
	return ok && reflect.DeepEqual(g.config, o.config) && reflect.DeepEqual(g.oauth, o.oauth)
}

// Away implements Issuer.
func (g *gitHub) Away() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away
}

// probe does nothing: GitHub limits requests without a token.
func (g *gitHub) probe(context.Context) {}

// noting records whether GitHub could be reached.
func (g *gitHub) noting(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away = nil; deploy.IsKind(err, deploy.Unavailable) {
		g.away = err
	}
	return err
}

// AuthURL implements Issuer. GitHub has no nonce.
func (g *gitHub) AuthURL(_ context.Context, a Attempt) (string, error) {
	return g.oauth.AuthCodeURL(a.State, oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Finish implements Issuer.
func (g *gitHub) Finish(ctx context.Context, a Attempt, callback url.Values) (Identity, error) {
	code, err := callbackCode(g.Name(), callback)
	if err != nil {
		return Identity{}, err
	}
	token, err := g.oauth.Exchange(g.context(ctx), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, g.noting(tokenError(g.Name(), "exchange the code", err, code, a.Verifier, g.oauth.ClientSecret))
	}
	return g.identify(ctx, token, 0)
}

func (g *gitHub) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, g.client)
}

// gitHubStored is what is kept for Reread. Logins can be given to another account, IDs cannot.
type gitHubStored struct {
	ID    int64         `json:"id"`
	Token *oauth2.Token `json:"token"`
}

// identify returns the user of a token. The user must have the ID, unless that is 0.
func (g *gitHub) identify(ctx context.Context, token *oauth2.Token, id int64) (Identity, error) {
	var account struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
		Name  string `json:"name"`
	}
	if err := g.get(ctx, token, "/user", &account); err != nil {
		return Identity{}, err
	}
	if account.ID == 0 || id != 0 && account.ID != id {
		return Identity{}, deploy.Errorf(deploy.Denied, "issuer %s answers about another account", g.Name())
	}
	groups, err := g.teams(ctx, token)
	if err != nil {
		return Identity{}, err
	}
	user := deploy.User{Issuer: g.Name(), Subject: account.Login, Name: account.Name, Groups: groups}
	if !plain(user.Name) {
		user.Name = ""
	}
	if err := check(user); err != nil {
		return Identity{}, err
	}
	permitted := func(team string) bool {
		return slices.ContainsFunc(groups, func(g string) bool { return strings.EqualFold(g, team) })
	}
	if len(g.config.Teams) > 0 && !slices.ContainsFunc(g.config.Teams, permitted) {
		return Identity{}, deploy.Errorf(deploy.Denied, "%s is in none of the teams of issuer %s", user.Subject, g.Name())
	}
	refresh, err := json.Marshal(gitHubStored{account.ID, token})
	return Identity{User: user, Refresh: refresh}, err
}

// teamsPerPage is the largest page of GitHub's lists.
const teamsPerPage = 100

// teams returns the user's teams as org/team.
func (g *gitHub) teams(ctx context.Context, token *oauth2.Token) ([]string, error) {
	var all []string
	for page := 1; len(all) <= maxGroups; page++ {
		var teams []struct {
			Slug         string `json:"slug"`
			Organization struct {
				Login string `json:"login"`
			} `json:"organization"`
		}
		if err := g.get(ctx, token, fmt.Sprintf("/user/teams?per_page=%d&page=%d", teamsPerPage, page), &teams); err != nil {
			return nil, err
		}
		for _, team := range teams {
			all = append(all, team.Organization.Login+"/"+team.Slug)
		}
		if len(teams) < teamsPerPage {
			break
		}
	}
	return all, nil
}

// get reads one object of the API.
func (g *gitHub) get(ctx context.Context, token *oauth2.Token, path string, into any) error {
	return g.noting(g.read(ctx, token, path, into))
}

func (g *gitHub) read(ctx context.Context, token *oauth2.Token, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.config.APIURL+path, nil)
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "ask issuer %s: %w", g.Name(), err)
	}
	token.SetAuthHeader(req)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	resp, err := g.client.Do(req)
	if err != nil {
		return deploy.Errorf(deploy.Unavailable, "ask issuer %s: %w", g.Name(), err)
	}
	defer resp.Body.Close()
	kind, advice := deploy.Unavailable, "retrying"
	switch resp.StatusCode {
	case http.StatusOK:
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			return deploy.Errorf(deploy.Unavailable, "read the answer of issuer %s: %w", g.Name(), err)
		}
		return nil
	case http.StatusUnauthorized:
		kind, advice = deploy.Denied, "the token was revoked"
	case http.StatusForbidden, http.StatusNotFound:
		if resp.Header.Get("X-RateLimit-Remaining") != "0" && resp.Header.Get("Retry-After") == "" {
			kind, advice = deploy.Invalid, "permit the OAuth app to read the organization, and check that scopes has read:org"
		}
	}
	path, _, _ = strings.Cut(path, "?")
	return deploy.Errorf(kind, "issuer %s answers %s with HTTP %d; %s", g.Name(), path, resp.StatusCode, advice)
}

// Reread implements Issuer.
func (g *gitHub) Reread(ctx context.Context, user deploy.User, refresh []byte) (Identity, error) {
	var before gitHubStored
	if err := json.Unmarshal(refresh, &before); err != nil || before.Token == nil {
		return Identity{}, deploy.Errorf(deploy.Internal, "read the stored token of issuer %s: it is damaged", g.Name())
	}
	token, err := g.oauth.TokenSource(g.context(ctx), before.Token).Token() // refreshed if it expires
	if err != nil {
		return Identity{}, g.noting(tokenError(g.Name(), "refresh the token", err, before.Token.RefreshToken, g.oauth.ClientSecret))
	}
	after := Identity{User: user}
	if after.Refresh, err = json.Marshal(gitHubStored{before.ID, token}); err != nil {
		return Identity{}, err
	}
	now, err := g.identify(ctx, token, before.ID)
	if err == nil && now.User.Subject != user.Subject {
		err = deploy.Errorf(deploy.Denied, "issuer %s calls the user %s now %s", g.Name(), user.Subject, now.User.Subject)
	}
	if err != nil {
		return after, err
	}
	return now, nil
}

// StartDevice implements Issuer.
func (g *gitHub) StartDevice(ctx context.Context) (Device, error) {
	d, err := startDevice(g.context(ctx), g.Name(), g.oauth, g.now())
	return d, g.noting(err)
}

// PollDevice implements Issuer.
func (g *gitHub) PollDevice(ctx context.Context, d Device) (Identity, error) {
	token, err := pollDevice(g.context(ctx), g.Name(), g.oauth, d)
	if errors.Is(err, ErrPending) || errors.Is(err, ErrSlowDown) {
		return Identity{}, err
	}
	if err != nil {
		return Identity{}, g.noting(err)
	}
	return g.identify(ctx, token, 0)
}
