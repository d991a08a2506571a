package signin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/cap/oidc"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

func TestSignInReturnsTheUser(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	got, err := signInAt(t, p, issuer)
	if err != nil {
		t.Fatal(err)
	}
	want := deploy.User{Issuer: "staff", Subject: "ann@example.com", Name: "Ann", Groups: []string{"payments"}}
	if diff := cmp.Diff(want, got.User); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Refresh == nil {
		t.Error("there is nothing to read the groups again with")
	}
}

// TestTokensThatMustNotBeAccepted changes one thing of a valid ID token. The rules are those of
// OpenID Connect Core 1.0, section 3.1.3.7.
func TestTokensThatMustNotBeAccepted(t *testing.T) {
	other := signintest.NewProvider(t) // has another key
	tests := map[string]func(p *signintest.Provider){
		"of another issuer":               func(p *signintest.Provider) { p.SetClaim("iss", "https://evil.example.com") },
		"for another audience":            func(p *signintest.Provider) { p.SetClaim("aud", "other") },
		"without an audience":             func(p *signintest.Provider) { p.SetClaim("aud", nil) },
		"issued to another client":        func(p *signintest.Provider) { p.SetClaim("azp", "other") },
		"for two audiences, without azp":  func(p *signintest.Provider) { p.SetClaim("aud", []string{p.ClientID, "other"}) },
		"with another nonce":              func(p *signintest.Provider) { p.SetClaim("nonce", "other") },
		"without a nonce":                 func(p *signintest.Provider) { p.SetClaim("nonce", nil) },
		"expired":                         func(p *signintest.Provider) { p.SetClaim("exp", time.Now().Add(-time.Hour).Unix()) },
		"expired before the skew":         func(p *signintest.Provider) { p.SetClaim("exp", time.Now().Add(-70*time.Second).Unix()) },
		"without an expiry":               func(p *signintest.Provider) { p.SetClaim("exp", nil) },
		"issued after the skew":           func(p *signintest.Provider) { p.SetClaim("iat", time.Now().Add(90*time.Second).Unix()) },
		"without the time of its issue":   func(p *signintest.Provider) { p.SetClaim("iat", nil) },
		"not valid before the skew":       func(p *signintest.Provider) { p.SetClaim("nbf", time.Now().Add(90*time.Second).Unix()) },
		"without a subject":               func(p *signintest.Provider) { p.SetClaim("sub", nil) },
		"with the hash of another token":  func(p *signintest.Provider) { p.SetClaim("at_hash", "AAAAAAAAAAAAAAAAAAAAAA") },
		"signed with the key of another":  func(p *signintest.Provider) { p.SetSign(signedBy(t, other)) },
		"signed with none":                func(p *signintest.Provider) { p.SetSign(unsigned(t)) },
		"signed with the client's secret": func(p *signintest.Provider) { p.SetSign(signedWithSecret(t, p)) },
		"signed with a shared key": func(p *signintest.Provider) {
			shared := []byte(strings.Repeat("k", 64)) // also in the issuer's key set
			p.SetSigningKeys(shared, shared, "HS256", "shared")
		},
		"with a changed claim":             func(p *signintest.Provider) { p.SetSign(tampered(t, p)) },
		"that is no token":                 func(p *signintest.Provider) { p.SetSign(func(map[string]any) string { return "hunter2" }) },
		"that is missing":                  func(p *signintest.Provider) { p.SetSign(func(map[string]any) string { return "" }) },
		"without an e-mail address":        func(p *signintest.Provider) { p.SetClaim("email", nil) },
		"with an unverified address":       func(p *signintest.Provider) { p.SetClaim("email_verified", false) },
		"whose address may be unverified":  func(p *signintest.Provider) { p.SetClaim("email_verified", nil) },
		"with groups that are no texts":    func(p *signintest.Provider) { p.SetClaim("groups", []int{1}) },
		"with the subject of all users":    func(p *signintest.Provider) { p.SetClaim("email", "*") },
		"with a subject of several lines":  func(p *signintest.Provider) { p.SetClaim("email", "ann@example.com\nbob@example.com") },
		"with a subject that is too long":  func(p *signintest.Provider) { p.SetClaim("email", strings.Repeat("x", 300)) },
		"with more groups than are stored": func(p *signintest.Provider) { p.SetClaim("groups", make([]string, 1001)) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			p := signintest.NewProvider(t)
			issuer, _ := open(t, p, nil)
			change(p)
			got, err := signInAt(t, p, issuer)
			if err == nil {
				t.Fatalf("signed in as %+v", got.User)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// signedBy signs with the key of another provider.
func signedBy(t *testing.T, other *signintest.Provider) func(map[string]any) string {
	key, _, alg, _ := other.SigningKeys()
	return func(claims map[string]any) string { return oidc.TestSignJWT(t, key, string(alg), claims, nil) }
}

// signedWithSecret signs with HS256, as clients that accept it would verify.
func signedWithSecret(t *testing.T, p *signintest.Provider) func(map[string]any) string {
	return func(claims map[string]any) string {
		return oidc.TestSignJWT(t, []byte(strings.Repeat(p.ClientSecret, 4)), "HS256", claims, nil)
	}
}

// unsigned makes a token with the algorithm none.
func unsigned(t *testing.T) func(map[string]any) string {
	return func(claims map[string]any) string {
		body, err := json.Marshal(claims)
		if err != nil {
			t.Error(err)
		}
		part := base64.RawURLEncoding.EncodeToString
		return part([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + part(body) + "."
	}
}

// tampered changes the groups and keeps the signature.
func tampered(t *testing.T, p *signintest.Provider) func(map[string]any) string {
	sign := signedBy(t, p)
	return func(claims map[string]any) string {
		parts := strings.Split(sign(claims), ".")
		claims["groups"] = []string{"admin"}
		return parts[0] + "." + strings.Split(unsigned(t)(claims), ".")[1] + "." + parts[2]
	}
}

// TestTokensThatMustBeAccepted are unusual and valid.
func TestTokensThatMustBeAccepted(t *testing.T) {
	tests := map[string]func(p *signintest.Provider, now time.Time){ // now is the agent's time, which stands still
		"expired within the skew": func(p *signintest.Provider, now time.Time) { p.SetClaim("exp", now.Add(-45*time.Second).Unix()) },
		"issued within the skew":  func(p *signintest.Provider, now time.Time) { p.SetClaim("iat", now.Add(45*time.Second).Unix()) },
		"valid within the skew":   func(p *signintest.Provider, now time.Time) { p.SetClaim("nbf", now.Add(45*time.Second).Unix()) },
		"for two audiences, to us": func(p *signintest.Provider, _ time.Time) {
			p.SetClaim("aud", []string{p.ClientID, "x"})
			p.SetClaim("azp", p.ClientID)
		},
		"verified is written as a text": func(p *signintest.Provider, _ time.Time) { p.SetClaim("email_verified", "true") },
		"one group is written as one":   func(p *signintest.Provider, _ time.Time) { p.SetClaim("groups", "payments") },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			p := signintest.NewProvider(t)
			issuer, clock := open(t, p, nil)
			clock.Stop()
			p.SetClaim("iat", clock.Now().Unix()) // not when the token is issued, which may be later on a busy machine
			change(p, clock.Now())
			got, err := signInAt(t, p, issuer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"payments"}, got.User.Groups); diff != "" {
				t.Errorf("groups: -want +got:\n%s", diff)
			}
		})
	}
}

// TestSkewCountsTheAgentsClock: a clock that is wrong by more than a minute is refused.
func TestSkewCountsTheAgentsClock(t *testing.T) {
	for by, ok := range map[time.Duration]bool{
		-45 * time.Second: true, -75 * time.Second: false, // the token is issued in the agent's future
		5*time.Minute + 45*time.Second: true, 5*time.Minute + 75*time.Second: false, // tokens live for 5 minutes
	} {
		p := signintest.NewProvider(t)
		issuer, clock := open(t, p, nil)
		clock.Stop() // however long the sign-in takes
		p.SetClaim("iat", clock.Now().Unix())
		p.SetClaim("exp", clock.Now().Add(5*time.Minute).Unix())
		clock.Advance(by)
		if _, err := signInAt(t, p, issuer); (err == nil) != ok {
			t.Errorf("the agent's clock is off by %s: %v, want accepted: %t", by, err, ok)
		}
	}
}

func TestCodesAreUsedOnce(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	attempt, callback := authorize(t, p.Transport(), issuer)
	if _, err := issuer.Finish(t.Context(), attempt, callback); err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Finish(t.Context(), attempt, callback); !deploy.IsKind(err, deploy.Denied) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), attempt.Verifier) {
		t.Errorf("a replayed code: %v, want an error of kind denied without secrets", err)
	}
}

// TestCodesBelongToTheirAttempt: PKCE and nonce bind them.
func TestCodesBelongToTheirAttempt(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	victim, _ := authorize(t, p.Transport(), issuer)
	attacker, callback := authorize(t, p.Transport(), issuer)
	if _, err := issuer.Finish(t.Context(), victim, callback); err == nil {
		t.Error("a code was accepted in the attempt of another browser")
	}
	_, callback = authorize(t, p.Transport(), issuer)
	if _, err := issuer.Finish(t.Context(), attacker, callback); err == nil {
		t.Error("a code was accepted with the verifier of another attempt")
	}
}

func TestRefusedCallbacks(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	attempt, callback := authorize(t, p.Transport(), issuer)
	for name, set := range map[string][2]string{
		"the issuer refuses": {"error", "access_denied"}, "there is no code": {"code", ""}, "another issuer answers": {"iss", "https://evil.example.com"},
	} {
		q := map[string][]string{}
		for k, v := range callback {
			q[k] = v
		}
		q[set[0]] = []string{set[1]}
		if _, err := issuer.Finish(t.Context(), attempt, q); err == nil {
			t.Errorf("%s: signed in", name)
		}
	}
	callback.Set("iss", p.Addr())
	if _, err := issuer.Finish(t.Context(), attempt, callback); err != nil {
		t.Errorf("the issuer names itself: %v", err)
	}
}

// TestIssuersThatNameThemselvesMust is RFC 9207: an answer without iss is not from such an issuer.
func TestIssuersThatNameThemselvesMust(t *testing.T) {
	p := signintest.NewProvider(t)
	p.SetDiscovery("authorization_response_iss_parameter_supported", true)
	issuer, _ := open(t, p, nil)
	if _, err := signInAt(t, p, issuer); err == nil {
		t.Error("signed in without iss")
	}
}

func TestKeyRotation(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	for range 3 {
		if _, err := signInAt(t, p, issuer); err != nil {
			t.Fatal(err)
		}
		p.Rotate()
	}
}

// TestProviderThatIsDown: nothing fails at the start, the issuer is named as away, and users
// sign in when it is back.
func TestProviderThatIsDown(t *testing.T) {
	p := signintest.NewProvider(t)
	p.SetDown(true)
	issuer, clock := open(t, p, nil)
	if _, err := issuer.AuthURL(t.Context(), attemptOf(t)); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("got %v, want an error of kind unavailable", err)
	}
	if issuer.Away() == nil {
		t.Error("the issuer is not away")
	}
	p.SetDown(false)
	clock.Advance(10 * time.Second)
	if _, err := signInAt(t, p, issuer); err != nil {
		t.Error(err)
	}
	if err := issuer.Away(); err != nil {
		t.Errorf("the issuer is still away: %v", err)
	}
}

func TestUserInfoHasWhatTheTokenLacks(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	p.SetClaim("groups", nil)
	p.SetClaim("email", nil)
	p.SetUserInfoReply(map[string]any{"sub": "user-1", "email": "ann@example.com", "email_verified": true, "groups": []string{"search"}})
	got, err := signInAt(t, p, issuer)
	if err != nil {
		t.Fatal(err)
	}
	if got.User.Subject != "ann@example.com" || !cmp.Equal(got.User.Groups, []string{"search"}) {
		t.Errorf("got %+v", got.User)
	}
	p.SetUserInfoReply(map[string]any{"sub": "user-1", "email": "ann@example.com", "groups": []string{"search"}})
	if got, err := signInAt(t, p, issuer); err == nil {
		t.Errorf("the token's email_verified was believed of the address of userinfo: %+v", got.User)
	}
	p.SetUserInfoReply(map[string]any{"sub": "user-2", "email": "bob@example.com", "email_verified": true, "groups": []string{"admin"}})
	if got, err := signInAt(t, p, issuer); err == nil {
		t.Errorf("userinfo of another user was believed: %+v", got.User)
	}
}

func TestSubjectClaimAndDomains(t *testing.T) {
	p := signintest.NewProvider(t)
	p.SetClaim("preferred_username", "ann")
	p.SetClaim("roles", []string{"deployers"})
	issuer, _ := open(t, p, func(c *config.Issuer) {
		c.SubjectClaim, c.GroupsClaim, c.AllowedDomains = "preferred_username", "roles", []string{"Example.com"}
	})
	got, err := signInAt(t, p, issuer)
	if err != nil || got.User.Subject != "ann" || !cmp.Equal(got.User.Groups, []string{"deployers"}) {
		t.Errorf("got %+v, %v", got.User, err)
	}
	for _, email := range []string{"ann@evil.com", "ann@notexample.com", "ann@example.com.evil.com", "ann@example.com@evil.com", "example.com"} {
		p.SetClaim("email", email)
		if got, err := signInAt(t, p, issuer); !deploy.IsKind(err, deploy.Denied) {
			t.Errorf("%s: signed in as %+v, %v", email, got.User, err)
		}
	}
}

// TestDomainsOfUnverifiedAddresses do not count, whatever claim names the user.
func TestDomainsOfUnverifiedAddresses(t *testing.T) {
	p := signintest.NewProvider(t)
	p.SetClaim("preferred_username", "ann")
	p.SetClaim("email_verified", false)
	issuer, _ := open(t, p, func(c *config.Issuer) {
		c.SubjectClaim, c.AllowedDomains = "preferred_username", []string{"example.com"}
	})
	if got, err := signInAt(t, p, issuer); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("signed in as %+v, %v", got.User, err)
	}
}

func TestGroupsAreReadAgain(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	first, err := signInAt(t, p, issuer)
	if err != nil {
		t.Fatal(err)
	}
	p.SetClaim("groups", []string{"search"})
	second, err := issuer.Reread(t.Context(), first.User, first.Refresh)
	if err != nil || !cmp.Equal(second.User.Groups, []string{"search"}) {
		t.Fatalf("got %+v, %v", second.User, err)
	}
	third, err := issuer.Reread(t.Context(), second.User, second.Refresh)
	if err != nil {
		t.Fatalf("the replaced token: %v", err)
	}
	if _, err := issuer.Reread(t.Context(), first.User, first.Refresh); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a token that was replaced: %v, want an error of kind denied", err)
	}
	p.SetClaim("sub", "user-2")
	if got, err := issuer.Reread(t.Context(), third.User, third.Refresh); err == nil {
		t.Errorf("the token of another user: %+v", got.User)
	}
}

// TestUserWhoIsRenamed: the session is of the old subject, whose rights must not pass on.
func TestUserWhoIsRenamed(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	got, err := signInAt(t, p, issuer)
	if err != nil {
		t.Fatal(err)
	}
	p.SetClaim("email", "ann.smith@example.com")
	if _, err := issuer.Reread(t.Context(), got.User, got.Refresh); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("got %v, want an error of kind denied", err)
	}
}

func TestDiscoveryThatMustNotBeAccepted(t *testing.T) {
	for name, set := range map[string][2]string{
		"another issuer":              {"issuer", "https://evil.example.com"},
		"tokens without encryption":   {"token_endpoint", "http://login.example.com/token"},
		"keys without encryption":     {"jwks_uri", "http://login.example.com/keys"},
		"a page without encryption":   {"authorization_endpoint", "http://login.example.com/authorize"},
		"userinfo without encryption": {"userinfo_endpoint", "http://login.example.com/userinfo"},
		"devices without encryption":  {"device_authorization_endpoint", "http://login.example.com/device"},
		"a page that is no web page":  {"authorization_endpoint", "javascript:alert(1)"},
	} {
		t.Run(name, func(t *testing.T) {
			p := signintest.NewProvider(t)
			p.SetDiscovery(set[0], set[1])
			issuer, _ := open(t, p, nil)
			if target, err := issuer.AuthURL(t.Context(), attemptOf(t)); err == nil {
				t.Errorf("users are sent to %s", target)
			}
		})
	}
}

// TestLargeAnswersAreNotRead: an issuer cannot fill the agent's memory.
func TestLargeAnswersAreNotRead(t *testing.T) {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%[1]q,"token_endpoint":%[1]q,"jwks_uri":%[1]q,"padding":%q}`, server.URL, strings.Repeat("x", 2<<20))
	}))
	defer server.Close()
	issuers, _ := newIssuers(t, &http.Transport{DisableKeepAlives: true}, config.Issuer{Name: "staff", Issuer: server.URL, ClientID: "piped"})
	if _, err := issuers.All()[0].AuthURL(t.Context(), attemptOf(t)); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

// TestRedirectsOfIssuersAreNotFollowed: they could lead to where the agent must not go.
func TestRedirectsOfIssuersAreNotFollowed(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("https://evil.example.com/", http.StatusFound))
	defer server.Close()
	issuers, _ := newIssuers(t, &http.Transport{DisableKeepAlives: true}, config.Issuer{Name: "staff", Issuer: server.URL, ClientID: "piped"})
	if _, err := issuers.All()[0].AuthURL(t.Context(), attemptOf(t)); err == nil || !strings.Contains(err.Error(), "redirects the agent") {
		t.Errorf("got %v, want an error about the redirect", err)
	}
}

// TestMetadataServicesAreNotReached: a discovery document could name them.
func TestMetadataServicesAreNotReached(t *testing.T) {
	for _, address := range []string{"169.254.169.254:80", "[fd00:ec2::254]:443", "[fe80::1]:443"} {
		conn, err := signin.Dial(t.Context(), address)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "metadata") {
			t.Errorf("%s: %v, want it refused", address, err)
		}
	}
}

// TestUnchangedIssuersStayKnown: a reload while the issuer is away ends no sign-in.
func TestUnchangedIssuersStayKnown(t *testing.T) {
	p := signintest.NewProvider(t)
	c := p.Config(t, "staff")
	issuers, _ := newIssuers(t, p.Transport(), c)
	attempt, callback := authorize(t, p.Transport(), issuers.All()[0])
	p.SetDown(true)
	set := func(c config.Issuer) {
		if err := issuers.Set(config.Access{ExternalURL: externalURL, Issuers: []config.Issuer{c}}); err != nil {
			t.Fatal(err)
		}
	}
	set(c)
	if _, err := issuers.All()[0].AuthURL(t.Context(), attempt); err != nil {
		t.Errorf("after a reload: %v", err)
	}
	p.SetDown(false)
	if _, err := issuers.All()[0].Finish(t.Context(), attempt, callback); err != nil {
		t.Errorf("an attempt from before the reload: %v", err)
	}
	c.ClientID = "other"
	set(c)
	if target, err := issuers.All()[0].AuthURL(t.Context(), attempt); err != nil || !strings.Contains(target, "client_id=other") {
		t.Errorf("after a change: %s, %v", target, err)
	}
	c.ClientSecretFile += "-missing"
	if err := issuers.Set(config.Access{ExternalURL: externalURL, Issuers: []config.Issuer{c}}); !deploy.IsKind(err, deploy.Invalid) || len(issuers.All()) != 1 {
		t.Errorf("a secret that cannot be read: %v, %d issuers", err, len(issuers.All()))
	}
}

func TestPublicClientsSendNoSecret(t *testing.T) {
	p := signintest.NewProvider(t)
	p.ClientSecret = ""
	issuer, _ := open(t, p, func(c *config.Issuer) { c.ClientSecretFile = "" })
	if _, err := signInAt(t, p, issuer); err != nil {
		t.Error(err)
	}
}

func TestDeviceFlow(t *testing.T) {
	p := signintest.NewProvider(t)
	issuer, _ := open(t, p, nil)
	d, err := issuer.StartDevice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.UserCode == "" || d.Interval != 5*time.Second || time.Until(d.Expires) < 9*time.Minute {
		t.Errorf("got %+v", d)
	}
	if _, err := issuer.PollDevice(t.Context(), d); !isPending(err) {
		t.Errorf("before the user signs in: %v", err)
	}
	p.Approve(d.UserCode, true)
	got, err := issuer.PollDevice(t.Context(), d)
	if err != nil || got.User.Subject != "ann@example.com" {
		t.Errorf("got %+v, %v", got.User, err)
	}
	if _, err := issuer.PollDevice(t.Context(), d); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a used device code: %v", err)
	}
}
