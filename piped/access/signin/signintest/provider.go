package signintest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/cap/oidc"

	"github.com/c785c783/piped/piped/config"
)

// Provider is an OpenID Connect provider. The test provider of package cap serves discovery,
// keys and userinfo, and signs. In front of it stand the endpoints whose checks that one lacks:
// PKCE with S256, codes for one use, client authentication, refresh tokens that are replaced
// with each use, and the device flow of RFC 8628.
type Provider struct {
	*oidc.TestProvider
	ClientID, ClientSecret string

	t     testing.TB
	front *httptest.Server

	mu        sync.Mutex
	down      bool
	discovery map[string]any
	claims    map[string]any
	sign      func(claims map[string]any) string
	codes     map[string]code
	refresh   map[string]bool // tokens that can be used
	devices   map[string]*device
	requests  map[string]int // by grant type
	n         int
}

type code struct{ challenge, nonce, redirect string }

type device struct {
	userCode string
	approved bool
	denied   bool
}

// NewProvider starts a provider, which ends with the test.
func NewProvider(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{
		TestProvider: oidc.StartTestProvider(quiet{t}), ClientID: "piped", ClientSecret: "client-hunter2", t: t,
		claims: map[string]any{"email": "ann@example.com", "email_verified": true, "name": "Ann", "groups": []string{"payments"}},
		codes:  map[string]code{}, refresh: map[string]bool{}, devices: map[string]*device{}, requests: map[string]int{},
	}
	p.SetClientCreds(p.ClientID, p.ClientSecret)
	p.SetExpectedSubject("user-1")
	p.SetUserInfoReply(map[string]any{"sub": "user-1"})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("POST /device", p.startDevice)
	p.front = httptest.NewTLSServer(mux)
	t.Cleanup(p.front.Close)
	p.discovery = map[string]any{
		"authorization_endpoint": p.front.URL + "/authorize", "token_endpoint": p.front.URL + "/token",
		"device_authorization_endpoint": p.front.URL + "/device",
		"scopes_supported":              []string{"openid", "email", "profile", "groups", "offline_access"},
	}
	p.SetAdditionalConfiguration(p.discovery)
	return p
}

// SetDiscovery sets a field of the discovery document.
func (p *Provider) SetDiscovery(name string, value any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discovery = maps.Clone(p.discovery)
	p.discovery[name] = value
	p.SetAdditionalConfiguration(p.discovery)
}

// quiet keeps the provider's progress out of the test's log.
type quiet struct{ testing.TB }

// Infof implements an optional interface of package cap.
func (quiet) Infof(string, ...any) {}

// Config returns the configuration of an agent that signs users in at the provider.
func (p *Provider) Config(t testing.TB, name string) config.Issuer {
	return config.Issuer{
		Name: name, Type: config.IssuerOIDC, Issuer: p.Addr(), ClientID: p.ClientID, ClientSecretFile: writeFile(t, p.ClientSecret),
		Scopes: []string{"openid", "email", "profile"}, GroupsClaim: "groups", SubjectClaim: "email",
	}
}

// Transport trusts the provider's certificate and cannot connect while the provider is down.
func (p *Provider) Transport() *http.Transport {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(p.CACert()))
	pool.AddCert(p.front.Certificate())
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if p.isDown() && (strings.HasSuffix(p.Addr(), address) || strings.HasSuffix(p.front.URL, address)) {
				return nil, syscall.ECONNREFUSED
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	p.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func (p *Provider) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// SetDown makes the provider refuse connections, or accept them again.
func (p *Provider) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// SetClaim sets a claim of the tokens to come; nil removes it, also a standard one.
func (p *Provider) SetClaim(name string, value any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = maps.Clone(p.claims)
	p.claims[name] = value
}

// SetSign replaces how ID tokens are made.
func (p *Provider) SetSign(sign func(claims map[string]any) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sign = sign
}

// Revoke makes every refresh token invalid.
func (p *Provider) Revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.refresh)
}

// Requests returns how often a grant type was requested.
func (p *Provider) Requests(grant string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[grant]
}

// Approve lets the user of a user code sign in, or refuse.
func (p *Provider) Approve(userCode string, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		if d.userCode == userCode {
			d.approved, d.denied = yes, !yes
			return
		}
	}
	p.t.Errorf("no device has user code %q", userCode)
}

// Rotate replaces the signing key.
func (p *Provider) Rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.SetSigningKeys(key, &key.PublicKey, oidc.ES256, fmt.Sprint("key-", time.Now().UnixNano()))
}

func (p *Provider) next(prefix string) string {
	p.n++
	return fmt.Sprintf("%s-hunter2-%d", prefix, p.n)
}

// authorize signs the user in without a question.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	scopes := strings.Fields(q.Get("scope"))
	for what, ok := range map[string]bool{
		"response_type":         q.Get("response_type") == "code",
		"client_id":             q.Get("client_id") == p.ClientID,
		"scope":                 slices.Contains(scopes, "openid") && slices.Contains(scopes, "offline_access"),
		"state":                 len(q.Get("state")) >= 22, // 128 bits
		"nonce":                 len(q.Get("nonce")) >= 22,
		"code_challenge_method": q.Get("code_challenge_method") == "S256",
		"code_challenge":        len(q.Get("code_challenge")) == 43,
		"redirect_uri":          strings.HasSuffix(q.Get("redirect_uri"), "/callback"),
	} {
		if !ok {
			p.t.Errorf("the authorization request has a wrong %s: %s", what, r.URL.RawQuery)
			http.Error(w, what, http.StatusBadRequest)
			return
		}
	}
	issued := p.next("code")
	p.codes[issued] = code{q.Get("code_challenge"), q.Get("nonce"), q.Get("redirect_uri")}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {issued}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, basic := r.BasicAuth()
	if p.ClientSecret == "" { // a public client
		id, basic = r.PostFormValue("client_id"), !basic && !r.PostForm.Has("client_secret")
	}
	if !basic || id != p.ClientID || secret != p.ClientSecret {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	grant := r.PostFormValue("grant_type")
	p.requests[grant]++
	nonce, refusal := "", ""
	switch grant {
	case "authorization_code":
		nonce, refusal = p.redeem(r.PostForm)
	case "refresh_token":
		token := r.PostFormValue("refresh_token")
		if !p.refresh[token] {
			refusal = "invalid_grant"
		}
		delete(p.refresh, token)
	case "urn:ietf:params:oauth:grant-type:device_code":
		refusal = p.pollDevice(r.PostFormValue("device_code"))
	default:
		refusal = "unsupported_grant_type"
	}
	if refusal != "" {
		answer(w, http.StatusBadRequest, map[string]any{"error": refusal, "error_description": "refused: " + r.PostForm.Encode()})
		return
	}
	token := p.next("refresh")
	p.refresh[token] = true
	answer(w, http.StatusOK, map[string]any{
		"access_token": p.next("access"), "token_type": "Bearer", "expires_in": 300, "refresh_token": token, "id_token": p.idToken(nonce),
	})
}

// redeem takes a code. It returns the nonce of its request, or why it is refused.
func (p *Provider) redeem(form url.Values) (nonce, refusal string) {
	c, ok := p.codes[form.Get("code")]
	delete(p.codes, form.Get("code"))
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	if !ok || c.redirect != form.Get("redirect_uri") || c.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		return "", "invalid_grant"
	}
	return c.nonce, ""
}

// idToken makes an ID token with the claims of the test.
func (p *Provider) idToken(nonce string) string {
	now := time.Now()
	all := map[string]any{
		"iss": p.Addr(), "sub": p.ExpectedSubject(), "aud": p.ClientID, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
	if nonce != "" {
		all["nonce"] = nonce
	}
	maps.Copy(all, p.claims)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	if p.sign != nil {
		return p.sign(all)
	}
	key, _, alg, _ := p.SigningKeys()
	return oidc.TestSignJWT(p.t, key, string(alg), all, nil)
}

func (p *Provider) startDevice(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.PostFormValue("client_id") != p.ClientID || r.PostFormValue("client_secret") != p.ClientSecret {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	deviceCode, d := p.next("device"), &device{userCode: fmt.Sprintf("ABCD-%04d", p.n)}
	p.devices[deviceCode] = d
	answer(w, http.StatusOK, map[string]any{
		"device_code": deviceCode, "user_code": d.userCode, "verification_uri": p.front.URL + "/activate", "expires_in": 600, "interval": 5,
	})
}

func (p *Provider) pollDevice(deviceCode string) (refusal string) {
	d := p.devices[deviceCode]
	switch {
	case d == nil:
		return "expired_token"
	case d.denied:
		return "access_denied"
	case !d.approved:
		return "authorization_pending"
	}
	delete(p.devices, deviceCode)
	return ""
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
