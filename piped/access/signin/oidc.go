package signin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

const (
	// discoverPause is the least time between two failed discoveries.
	discoverPause = 5 * time.Second
	// discoverAgain is how long discovered addresses are used.
	discoverAgain = 10 * time.Minute
)

// provider is an OpenID Connect issuer. Discovery happens when it is needed, so that an
// issuer that is away does not keep the agent from starting.
type provider struct {
	config config.Issuer
	secret string
	// callback is the redirect URL.
	callback string
	client   *http.Client
	now      func() time.Time

	turn sync.Mutex // held while the discovery document is read

	mu    sync.Mutex
	found *metadata // nil before the first discovery
	tried time.Time
	away  error // of the last discovery
}

// metadata is what an issuer says about itself.
type metadata struct {
	*oidc.Provider
	verifier *oidc.IDTokenVerifier
	oauth    oauth2.Config
	// namesItself: the callback has the parameter iss of RFC 9207.
	namesItself bool
}

// Name implements Issuer.
func (p *provider) Name() string { return p.config.Name }

func (p *provider) same(other Issuer) bool {
	o, ok := other.(*provider)
	return ok && reflect.DeepEqual(p.config, o.config) && p.secret == o.secret && p.callback == o.callback
}

// Away implements Issuer.
func (p *provider) Away() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// probe reads the discovery document again if it was read some time ago or could not be read.
func (p *provider) probe(ctx context.Context) {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	since := discoverAgain
	if p.away != nil {
		since = discoverPause
	}
	elapsed := p.now().Sub(p.tried)
	due := p.tried.IsZero() || elapsed >= since || elapsed < 0
	p.mu.Unlock()
	if !due {
		return
	}
	found, err := p.read(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried, p.away = p.now(), err
	if err == nil {
		p.found = found
	}
}

// discover returns the issuer's metadata. It reads the document only if there is none yet.
func (p *provider) discover(ctx context.Context) (*metadata, error) {
	if found, _ := p.known(); found != nil {
		return found, nil
	}
	p.probe(context.WithoutCancel(ctx)) // the result is for all callers, so it does not end with this one
	found, err := p.known()
	if found == nil {
		return nil, err
	}
	return found, nil
}

func (p *provider) known() (*metadata, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found, p.away
}

// read reads the discovery document.
func (p *provider) read(ctx context.Context) (*metadata, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.config.Issuer)
	var mismatch *oidc.IssuerMismatchError
	switch {
	case errors.As(err, &mismatch):
		return nil, deploy.Errorf(deploy.Invalid, "issuer %s calls itself %q; write the same URL as issuer", p.Name(), clip(mismatch.Discovered))
	case err != nil:
		return nil, deploy.Errorf(deploy.Unavailable, "read the discovery document of issuer %s: %s", p.Name(), clip(err.Error()))
	}
	var more struct {
		Scopes      []string `json:"scopes_supported"`
		Auth        []string `json:"token_endpoint_auth_methods_supported"`
		NamesItself bool     `json:"authorization_response_iss_parameter_supported"`
		JWKS        string   `json:"jwks_uri"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "read the discovery document of issuer %s: %w", p.Name(), err)
	}
	endpoint := found.Endpoint()
	for _, address := range []string{endpoint.AuthURL, endpoint.TokenURL, more.JWKS} {
		if !secureURL(address) {
			return nil, deploy.Errorf(deploy.Invalid, "the discovery document of issuer %s names %q, which is no https URL", p.Name(), clip(address))
		}
	}
	for _, address := range []string{endpoint.DeviceAuthURL, found.UserInfoEndpoint()} {
		if address != "" && !secureURL(address) {
			return nil, deploy.Errorf(deploy.Invalid, "the discovery document of issuer %s names %q, which is no https URL", p.Name(), clip(address))
		}
	}
	endpoint.AuthStyle = p.authStyle(more.Auth)
	keys := oidc.ClientContext(context.Background(), p.client) // outlives the request
	return &metadata{
		Provider: found, namesItself: more.NamesItself,
		verifier: found.VerifierContext(keys, &oidc.Config{ClientID: p.config.ClientID, SupportedSigningAlgs: asymmetric(), SkipExpiryCheck: true}),
		oauth: oauth2.Config{
			ClientID: p.config.ClientID, ClientSecret: p.secret, Endpoint: endpoint, RedirectURL: p.callback, Scopes: p.scopes(more.Scopes),
		},
	}, nil
}

// authStyle returns how the agent authenticates itself. client_secret_basic is the default of
// OpenID Connect.
func (p *provider) authStyle(supported []string) oauth2.AuthStyle {
	if p.secret == "" || len(supported) > 0 && !slices.Contains(supported, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// scopes returns what the agent asks for.
func (p *provider) scopes(supported []string) []string {
	scopes := slices.Clone(p.config.Scopes)
	if !slices.Contains(scopes, oidc.ScopeOpenID) {
		scopes = append([]string{oidc.ScopeOpenID}, scopes...)
	}
	if slices.Contains(supported, oidc.ScopeOfflineAccess) && !slices.Contains(scopes, oidc.ScopeOfflineAccess) {
		scopes = append(scopes, oidc.ScopeOfflineAccess)
	}
	return scopes
}

// AuthURL implements Issuer.
func (p *provider) AuthURL(ctx context.Context, a Attempt) (string, error) {
	m, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return m.oauth.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Finish implements Issuer.
func (p *provider) Finish(ctx context.Context, a Attempt, callback url.Values) (Identity, error) {
	m, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	if iss := callback.Get("iss"); iss != p.config.Issuer && (iss != "" || m.namesItself) {
		return Identity{}, deploy.Errorf(deploy.Invalid, "the callback of issuer %s is from issuer %q", p.Name(), clip(iss))
	}
	code, err := callbackCode(p.Name(), callback)
	if err != nil {
		return Identity{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := m.oauth.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, tokenError(p.Name(), "exchange the code", err, code, a.Verifier, p.secret)
	}
	return p.identify(ctx, m, token, a.Nonce)
}

// stored is what is kept for Reread.
type stored struct {
	Subject string `json:"sub"` // the issuer's own, not that of roles
	Token   string `json:"refresh_token"`
}

// identify returns the user of a token response to a sign-in.
func (p *provider) identify(ctx context.Context, m *metadata, token *oauth2.Token, nonce string) (Identity, error) {
	c, err := p.verify(ctx, m, token, nonce)
	if err != nil {
		return Identity{}, err
	}
	if err := p.complete(ctx, m, token, c); err != nil {
		return Identity{}, err
	}
	user, err := userOf(p.config, c)
	if err != nil {
		return Identity{}, err
	}
	return p.identity(user, c.text("sub"), token.RefreshToken)
}

// identity returns a user with what reads the groups again.
func (p *provider) identity(user deploy.User, subject, refreshToken string) (Identity, error) {
	if refreshToken == "" {
		return Identity{User: user}, nil
	}
	refresh, err := json.Marshal(stored{subject, refreshToken})
	return Identity{User: user, Refresh: refresh}, err
}

// verify returns the claims of the ID token in a token response.
func (p *provider) verify(ctx context.Context, m *metadata, token *oauth2.Token, nonce string) (claims, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok || raw == "" {
		return nil, deploy.Errorf(deploy.Internal, "issuer %s answers without an ID token", p.Name())
	}
	id, err := m.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "verify the ID token of issuer %s: %s", p.Name(), clip(err.Error()))
	}
	var c claims
	if err := id.Claims(&c); err != nil {
		return nil, deploy.Errorf(deploy.Internal, "read the ID token of issuer %s: %w", p.Name(), err)
	}
	if err := checkToken(id, c, p.config.ClientID, nonce, token.AccessToken, p.now()); err != nil {
		return nil, deploy.Errorf(deploy.Internal, "verify the ID token of issuer %s: %w", p.Name(), err)
	}
	return c, nil
}

// complete adds claims that the ID token lacks from the userinfo endpoint, if there is one.
// Whether an e-mail address is verified is believed only of the address that it came with.
func (p *provider) complete(ctx context.Context, m *metadata, token *oauth2.Token, c claims) error {
	if c.has(p.config.GroupsClaim) && c.has(p.config.SubjectClaim) || m.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := p.userInfo(ctx, m, token)
	if err != nil {
		return err
	}
	if info.text("sub") != c.text("sub") {
		return deploy.Errorf(deploy.Internal, "the userinfo endpoint of issuer %s answers about another user than the ID token", p.Name())
	}
	for _, name := range []string{p.config.GroupsClaim, p.config.SubjectClaim, "name"} {
		if !c.has(name) && info.has(name) && name != "email" {
			c[name] = info[name]
		}
	}
	if !c.has("email") {
		c["email"], c["email_verified"] = info["email"], info["email_verified"]
	}
	return nil
}

func (p *provider) userInfo(ctx context.Context, m *metadata, token *oauth2.Token) (claims, error) {
	info, err := m.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "read the userinfo endpoint of issuer %s: %s", p.Name(), clip(err.Error()))
	}
	var c claims
	if err := info.Claims(&c); err != nil {
		return nil, deploy.Errorf(deploy.Internal, "read the userinfo endpoint of issuer %s: %w", p.Name(), err)
	}
	return c, nil
}

// Reread implements Issuer. A user who has become another subject is refused.
func (p *provider) Reread(ctx context.Context, user deploy.User, refresh []byte) (Identity, error) {
	var before stored
	if err := json.Unmarshal(refresh, &before); err != nil {
		return Identity{}, deploy.Errorf(deploy.Internal, "read the stored token of issuer %s: it is damaged", p.Name())
	}
	m, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := m.oauth.TokenSource(ctx, &oauth2.Token{RefreshToken: before.Token}).Token()
	if err != nil {
		return Identity{}, tokenError(p.Name(), "refresh the token", err, before.Token, p.secret)
	}
	after, err := p.identity(user, before.Subject, token.RefreshToken)
	if err != nil {
		return Identity{}, err
	}
	// From here on the old token may be used up: the new one is returned with every error.
	c, err := p.reread(ctx, m, token, before.Subject)
	if err != nil {
		return after, err
	}
	now, err := userOf(p.config, c)
	if err == nil && now.Subject != user.Subject {
		err = deploy.Errorf(deploy.Denied, "issuer %s calls the user %s now %s", p.Name(), user.Subject, now.Subject)
	}
	if err != nil {
		return after, err
	}
	after.User = now
	return after, nil
}

// reread returns the claims after a refresh, which need not come with an ID token.
func (p *provider) reread(ctx context.Context, m *metadata, token *oauth2.Token, subject string) (c claims, err error) {
	if _, ok := token.Extra("id_token").(string); !ok {
		if m.UserInfoEndpoint() == "" {
			return nil, deploy.Errorf(deploy.Invalid, "issuer %s refreshes without an ID token and has no userinfo endpoint: groups cannot be read", p.Name())
		}
		c, err = p.userInfo(ctx, m, token)
	} else if c, err = p.verify(ctx, m, token, ""); err == nil {
		err = p.complete(ctx, m, token, c)
	}
	if err == nil && c.text("sub") != subject {
		err = deploy.Errorf(deploy.Internal, "issuer %s refreshes the token of another user", p.Name())
	}
	return c, err
}

// StartDevice implements Issuer.
func (p *provider) StartDevice(ctx context.Context) (Device, error) {
	m, err := p.discover(ctx)
	if err != nil {
		return Device{}, err
	}
	var opts []oauth2.AuthCodeOption
	if p.secret != "" {
		opts = append(opts, oauth2.SetAuthURLParam("client_secret", p.secret))
	}
	return startDevice(oidc.ClientContext(ctx, p.client), p.Name(), m.oauth, p.now(), opts...)
}

// PollDevice implements Issuer. A device flow has no nonce.
func (p *provider) PollDevice(ctx context.Context, d Device) (Identity, error) {
	m, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := pollDevice(ctx, p.Name(), m.oauth, d)
	if err != nil {
		return Identity{}, err
	}
	return p.identify(ctx, m, token, "")
}
