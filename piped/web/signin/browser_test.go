package signin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/access/signin/signintest"
)

// TestSignInThroughAnIssuer is the story of a user, from the page to sign-out.
func TestSignInThroughAnIssuer(t *testing.T) {
	e := newEnv(t)
	if got := e.get(e.browser, "/private"); got.StatusCode != http.StatusUnauthorized {
		t.Fatalf("before the sign-in: %s", got.Status)
	}
	choose := e.get(e.browser, "/sign-in?next=/private")
	if !strings.Contains(choose.text, `href="/sign-in/staff?next=%2Fprivate"`) {
		t.Fatalf("the page does not lead to the issuer:\n%s", choose.text)
	}
	if got := e.get(e.browser, "/sign-in/staff?next=/private"); got.text != "hello ann@example.com" || got.Request.URL.Path != "/private" {
		t.Fatalf("after the sign-in: %s %s %q", got.Request.URL, got.Status, got.text)
	}
	if r := e.audit.last(); r.Method != "SignIn" || r.Subject != "ann@example.com" || r.Issuer != "staff" || r.Code != "OK" || r.CallerID == "" || r.Remote != "127.0.0.1" {
		t.Errorf("the audit log has %+v", r)
	}
	token := e.handler.Token(withCookies(e))
	if got := e.post(e.browser, "/sign-out", nil); got.Request.URL.Path != "/sign-in" {
		t.Errorf("sign-out leads to %s", got.Request.URL)
	}
	if r := e.audit.last(); r.Method != "SignOut" || r.Subject != "ann@example.com" || r.CallerID == "" {
		t.Errorf("the audit log has %+v", r)
	}
	if _, ok := e.sessions.Find(token); ok {
		t.Error("the session is open after sign-out")
	}
	if got := e.get(e.browser, "/private"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("after sign-out: %s", got.Status)
	}
	e.checkLog()
}

// withCookies returns a request with the cookies of the browser.
func withCookies(e *env) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, e.server.URL, nil)
	for _, c := range e.browser.Jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	return r
}

func TestSignInThroughGitHub(t *testing.T) {
	e := &env{t: t, clock: &signintest.Clock{}, audit: &audit{}}
	e.log = newLog()
	g := signintest.NewGitHub(t)
	e.serve(&http.Transport{DisableKeepAlives: true}, g.Config(t, "github"))
	if got := e.get(e.browser, "/sign-in/github"); got.text != "hello ann" {
		t.Errorf("got %s %q", got.Status, got.text)
	}
}

func TestSignInWithAKey(t *testing.T) {
	e := newEnv(t)
	got := e.post(e.browser, "/sign-in/key", url.Values{"key": {ownerKey}, "next": {"/private"}})
	if got.text != "hello owner" || got.Request.URL.Path != "/private" {
		t.Errorf("got %s %s %q", got.Request.URL, got.Status, got.text)
	}
	s, ok := e.sessions.Find(e.handler.Token(withCookies(e)))
	if !ok || s.KeyID != "owner" || s.User.Issuer != "" || s.Client != "page" {
		t.Errorf("the session is %+v", s)
	}
	e.checkLog()
}

// TestRefusalsSayNothing: the page of a wrong key, a disabled user and a refused user differ only
// in their reference.
func TestRefusalsSayNothing(t *testing.T) {
	e := newEnv(t)
	e.sessions.Disable("", "owner")
	e.sessions.Disable("staff", "ann@example.com")
	wrong := e.post(e.browser, "/sign-in/key", url.Values{"key": {"owner.wrong"}})
	pages := map[string]page{
		"a key that is not known": e.post(e.browser, "/sign-in/key", url.Values{"key": {"nobody.wrong"}}),
		"no key":                  e.post(e.browser, "/sign-in/key", nil),
		"a disabled key holder":   e.post(e.browser, "/sign-in/key", url.Values{"key": {ownerKey}}),
		"a disabled user":         e.get(e.browser, "/sign-in/staff"),
	}
	e.provider.SetClaim("email_verified", false)
	pages["a user whom the issuer refuses"] = e.get(e.browser, "/sign-in/staff")
	for name, got := range pages {
		if got.StatusCode != wrong.StatusCode || withoutReference(got.text) != withoutReference(wrong.text) {
			t.Errorf("%s: %s\n%s\nwant what a wrong key gets: %s\n%s", name, got.Status, got.text, wrong.Status, wrong.text)
		}
	}
	if e.sessions.Count() != 0 {
		t.Errorf("%d sessions were opened", e.sessions.Count())
	}
	if r := e.audit.last(); r.Code != "Unauthenticated" || r.Reason == "" {
		t.Errorf("the audit log has %+v", r)
	}
	e.checkLog()
}

func withoutReference(text string) string {
	before, after, _ := strings.Cut(text, "under reference ")
	_, rest, _ := strings.Cut(after, ".")
	return before + rest
}

func TestStatesAreUsedOnce(t *testing.T) {
	e := newEnv(t)
	browser := e.staying()
	callback := e.callbackOf(browser, "/sign-in/staff")
	if got := e.get(browser, callback); got.StatusCode != http.StatusSeeOther {
		t.Fatalf("the callback answers %s", got.Status)
	}
	if got := e.get(browser, callback); got.StatusCode != http.StatusForbidden {
		t.Errorf("a replayed callback answers %s", got.Status)
	}
}

// TestStatesBelongToTheirBrowser: nobody can be signed in to the account of another.
func TestStatesBelongToTheirBrowser(t *testing.T) {
	e := newEnv(t)
	callback := e.callbackOf(e.staying(), "/sign-in/staff")
	victim := e.newBrowser(e.browser.Transport)
	if got := e.get(victim, callback); got.StatusCode != http.StatusForbidden || len(got.Cookies()) > 0 {
		t.Errorf("a browser without an attempt: %s, cookies %v", got.Status, got.Cookies())
	}
	callback = e.callbackOf(e.staying(), "/sign-in/staff")
	e.get(victim, "/sign-in/staff") // has an attempt of its own
	before := e.sessions.Count()
	if got := e.get(victim, callback); got.StatusCode != http.StatusForbidden || e.sessions.Count() != before {
		t.Errorf("a browser with another attempt: %s", got.Status)
	}
}

func TestStatesExpire(t *testing.T) {
	e := newEnv(t)
	callback := e.callbackOf(e.staying(), "/sign-in/staff")
	e.clock.Advance(11 * time.Minute)
	if got := e.get(e.staying(), callback); got.StatusCode != http.StatusForbidden {
		t.Errorf("a callback after 11 minutes answers %s", got.Status)
	}
}

// TestStatesBelongToTheirIssuer: the answer of one issuer is not taken for that of another.
func TestStatesBelongToTheirIssuer(t *testing.T) {
	e := &env{t: t, provider: signintest.NewProvider(t), clock: &signintest.Clock{}, audit: &audit{}, log: newLog()}
	e.serve(e.provider.Transport(), e.provider.Config(t, "staff"), e.provider.Config(t, "partners"))
	callback := e.callbackOf(e.staying(), "/sign-in/staff")
	if got := e.get(e.staying(), strings.Replace(callback, "/staff/", "/partners/", 1)); got.StatusCode != http.StatusForbidden {
		t.Errorf("the callback at another issuer answers %s", got.Status)
	}
	if got := e.provider.Requests("authorization_code"); got != 0 {
		t.Errorf("another issuer was sent the code %d times", got)
	}
}

func TestWrongCallbacks(t *testing.T) {
	e := newEnv(t)
	for name, query := range map[string]string{
		"nothing": "", "no state": "?code=x", "an unknown state": "?code=x&state=" + strings.Repeat("a", 43),
		"a refusal without state": "?error=access_denied",
	} {
		if got := e.get(e.staying(), "/sign-in/staff/callback"+query); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, got.Status)
		}
	}
	callback := e.callbackOf(e.staying(), "/sign-in/staff")
	refused := e.get(e.staying(), callback[:strings.Index(callback, "code=")]+"error=access_denied&error_description=%3Cscript%3E&"+callback[strings.Index(callback, "state="):])
	if refused.StatusCode != http.StatusForbidden || strings.Contains(refused.text, "script") {
		t.Errorf("the issuer's refusal: %s\n%s", refused.Status, refused.text)
	}
	if got := e.get(e.staying(), "/sign-in/other"); got.StatusCode != http.StatusNotFound {
		t.Errorf("an issuer that is not configured: %s", got.Status)
	}
}

// TestIssuerThatIsAway is named on the page, and comes back.
func TestIssuerThatIsAway(t *testing.T) {
	e := newEnv(t)
	e.provider.SetDown(true)
	if got := e.get(e.staying(), "/sign-in/staff"); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the issuer is away: %s", got.Status)
	}
	if got := e.get(e.staying(), "/sign-in"); !strings.Contains(got.text, "Sign in with staff</a> <strong>cannot be reached") {
		t.Errorf("the page does not say which issuer is away:\n%s", got.text)
	}
	e.provider.SetDown(false)
	e.clock.Advance(10 * time.Second)
	if got := e.get(e.browser, "/sign-in/staff"); got.StatusCode != http.StatusNotFound && !strings.HasPrefix(got.text, "hello") {
		t.Errorf("the issuer is back: %s %s", got.Status, got.text)
	}
	if got := e.get(e.staying(), "/sign-in"); strings.Contains(got.text, "cannot be reached") {
		t.Errorf("the page still says that the issuer is away:\n%s", got.text)
	}
}

// TestCookies are those of the contract: secure ones have the prefix __Host-, and only plain HTTP
// to this machine has others.
func TestCookies(t *testing.T) {
	e := newEnv(t)
	e.external = "" // the request decides
	for host, secure := range map[string]bool{"127.0.0.1:9085": false, "localhost:9085": false, "[::1]:9085": false, "piped.example.com": true, "10.0.0.1:9085": true} {
		r, _ := http.NewRequest(http.MethodPost, "http://"+host+"/sign-in/key", strings.NewReader("key="+url.QueryEscape(ownerKey)))
		r.RemoteAddr = "192.0.2.1:1234"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := newRecorder()
		e.handler.ServeHTTP(w, r)
		cookies := w.Result().Cookies()
		if len(cookies) != 1 {
			t.Fatalf("%s: %d cookies, %s", host, len(cookies), w.Body)
		}
		c := cookies[0]
		if !c.HttpOnly || c.Secure != secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" ||
			strings.HasPrefix(c.Name, "__Host-") != secure || c.MaxAge < 6*24*3600 || c.MaxAge > 7*24*3600 {
			t.Errorf("%s: %+v", host, c)
		}
	}
}

// TestWhatAnyoneCanSendIsNotRecorded: the audit log has sign-ins and sign-outs, and no noise.
func TestWhatAnyoneCanSendIsNotRecorded(t *testing.T) {
	e := newEnv(t)
	r, _ := http.NewRequest(http.MethodPost, e.server.URL+"/sign-out", nil)
	r.Header.Set("Cookie", "piped-session=admin.x")
	if got := e.do(e.staying(), r); got.StatusCode != http.StatusSeeOther {
		t.Errorf("sign-out without a session: %s", got.Status)
	}
	e.get(e.staying(), "/sign-in?cli_port=x")
	e.get(e.staying(), "/sign-in/other")
	if r := e.audit.last(); r.Method != "" {
		t.Errorf("the audit log has %+v", r)
	}
}

func TestAnotherSignInEndsTheSession(t *testing.T) {
	e := newEnv(t)
	for range 3 {
		e.post(e.browser, "/sign-in/key", url.Values{"key": {ownerKey}})
	}
	if got := e.sessions.Count(); got != 1 {
		t.Errorf("%d sessions are open, want 1", got)
	}
}

// TestOtherSitesCannotPost: browsers say where a request comes from.
func TestOtherSitesCannotPost(t *testing.T) {
	e := newEnv(t)
	e.get(e.browser, "/sign-in/staff")
	for _, path := range []string{"/sign-in/key", "/sign-in/confirm", "/sign-in/token", "/sign-in/device", "/sign-in/device/token", "/sign-out"} {
		for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"}, {"Origin", "null"}} {
			r, _ := http.NewRequest(http.MethodPost, e.server.URL+path, strings.NewReader("key="+ownerKey))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set(header[0], header[1])
			if got := e.do(e.staying(), r); got.StatusCode != http.StatusForbidden {
				t.Errorf("POST %s with %s: %s answers %s", path, header[0], header[1], got.Status)
			}
		}
	}
	if e.sessions.Count() != 1 {
		t.Error("another site signed the user out or in")
	}
}

// TestRedirectsStayHere attacks the path to which a browser returns.
func TestRedirectsStayHere(t *testing.T) {
	e := newEnv(t)
	for _, next := range []string{
		"//evil.example.com", "///evil.example.com", `/\evil.example.com`, `\\evil.example.com`, `/\/evil.example.com`, "/%2fevil.example.com",
		"/%2Fevil.example.com", "/%5cevil.example.com", "/%5Cevil.example.com", "https://evil.example.com", "https:evil.example.com",
		"javascript:alert(1)", "data:text/html,x", "/\t/evil.example.com", "/\n/evil.example.com", "/\r\nSet-Cookie: a=b", "/%0d%0aSet-Cookie:%20a=b",
		"/a\r\nLocation: https://evil.example.com", "evil.example.com", "@evil.example.com", "/a//evil.example.com", "/.//evil.example.com",
		" //evil.example.com", "/\u0085/evil.example.com", "/%", "/" + strings.Repeat("a", 4000), "",
	} {
		got := e.post(e.staying(), "/sign-in/key", url.Values{"key": {ownerKey}, "next": {next}})
		if location := got.Header.Get("Location"); got.StatusCode != http.StatusSeeOther || location != "/" || len(got.Header["Location"]) != 1 {
			t.Errorf("%q: %s, Location %q", next, got.Status, got.Header["Location"])
		}
		if slices.Contains(got.Header["Set-Cookie"], "a=b") {
			t.Errorf("%q sets a cookie", next)
		}
		e.clock.Advance(time.Second)
	}
	for next, want := range map[string]string{
		"/": "/", "/applications": "/applications", "/a/b?x=1&y=//z": "/a/b?x=1&y=//z", "/a%20b": "/a%20b", "/a#top": "/a",
		"/login?next=https://evil.example.com": "/login?next=https://evil.example.com",
	} {
		got := e.post(e.staying(), "/sign-in/key", url.Values{"key": {ownerKey}, "next": {next}})
		if location := got.Header.Get("Location"); location != want {
			t.Errorf("%q: Location %q, want %q", next, location, want)
		}
	}
}

func TestHeadersOfEveryResponse(t *testing.T) {
	e := newEnv(t)
	for _, got := range []page{
		e.get(e.staying(), "/sign-in"), e.get(e.staying(), "/sign-in/staff"), e.get(e.staying(), "/sign-in/staff/callback"), e.get(e.staying(), "/sign-in/other"),
		e.post(e.staying(), "/sign-in/key", nil), e.post(e.staying(), "/sign-out", nil), e.call("/sign-in/token", "{}"), e.call("/sign-in/device", `{"issuer":"x"}`),
	} {
		h := got.Header
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "base-uri 'none'") ||
			!strings.Contains(csp, "form-action 'self'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "script-src") {
			t.Errorf("%s: Content-Security-Policy %q", got.Request.URL.Path, csp)
		}
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: headers %v", got.Request.URL.Path, h)
		}
		if strings.Contains(got.text, "<script") || strings.Contains(got.text, "style=") || strings.Contains(got.text, " on") && strings.Contains(got.text, "onclick") {
			t.Errorf("%s has a script or style:\n%s", got.Request.URL.Path, got.text)
		}
	}
}

// TestAttemptsAreLimited for each network: an IPv6 network is a /64.
func TestAttemptsAreLimited(t *testing.T) {
	e := newEnv(t)
	try := func(remote string) int {
		r, _ := http.NewRequest(http.MethodPost, e.server.URL+"/sign-in/key", strings.NewReader("key=wrong"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = remote
		w := newRecorder()
		e.handler.ServeHTTP(w, r)
		return w.Code
	}
	allowed := 0
	for i := range 200 {
		if try(fmt.Sprintf("[2001:db8:1:2::%x]:1", i)) != http.StatusTooManyRequests {
			allowed++
		}
	}
	if allowed < 10 || allowed > 60 {
		t.Errorf("%d of 200 attempts of one /64 were let through", allowed)
	}
	if got := try("[2001:db8:1:3::1]:1"); got == http.StatusTooManyRequests {
		t.Error("another network is limited, too")
	}
	if got := try("192.0.2.1:1"); got == http.StatusTooManyRequests {
		t.Error("an IPv4 address is limited, too")
	}
	e.clock.Advance(time.Minute)
	if got := try("[2001:db8:1:2::1]:1"); got == http.StatusTooManyRequests {
		t.Error("the network is still limited after a minute")
	}
}

func TestLargeFormsAreRefused(t *testing.T) {
	e := newEnv(t)
	if got := e.post(e.staying(), "/sign-in/key", url.Values{"key": {ownerKey}, "next": {strings.Repeat("a", 20<<10)}}); got.StatusCode != http.StatusBadRequest {
		t.Errorf("a form of 20 KiB: %s", got.Status)
	}
}
