package signin_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/access/signin/signintest"
)

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

func newLog() *bytes.Buffer { return &bytes.Buffer{} }

// FuzzCallback: no query and no cookie opens a session, and nothing of them is in the page.
func FuzzCallback(f *testing.F) {
	e := newEnv(f)
	f.Add("code=x&state="+strings.Repeat("a", 43), "piped-sign-in="+strings.Repeat("b", 43))
	f.Add("error=access_denied&error_description=%3Cscript%3E", "piped-session=a.b")
	f.Add("state=%00&iss=\xff", "__Host-piped-sign-in=x; piped-sign-in=")
	f.Fuzz(func(t *testing.T, query, cookie string) {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/sign-in/staff/callback", nil)
		r.URL.RawQuery = query
		r.Header.Set("Cookie", cookie)
		w := newRecorder()
		e.clock.Advance(time.Second)
		e.handler.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 || e.sessions.Count() != 0 {
			t.Errorf("the callback answers %d with cookies %v", w.Code, w.Result().Cookies())
		}
		if strings.Contains(w.Body.String(), "<script") {
			t.Errorf("the page has what was sent:\n%s", w.Body)
		}
	})
}

// FuzzNext: whatever the target, the browser stays on this server, as a browser resolves it.
func FuzzNext(f *testing.F) {
	e := &env{t: f, clock: &signintest.Clock{}, audit: &audit{}, log: newLog()}
	e.serve(&http.Transport{DisableKeepAlives: true})
	for _, seed := range []string{"/", "//evil", `/\evil`, "/%2fevil", "/\r\nX: y", "https://evil", "/a?b=c#d", "/a/../..//evil", "/;//evil", "/?\\evil"} {
		f.Add(seed)
	}
	base, _ := url.Parse("http://127.0.0.1/sign-in/key")
	f.Fuzz(func(t *testing.T, next string) {
		form := url.Values{"key": {ownerKey}, "next": {next}}
		r := httptest.NewRequest(http.MethodPost, base.String(), strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := newRecorder()
		e.clock.Advance(time.Second)
		e.handler.ServeHTTP(w, r)
		if w.Code == http.StatusBadRequest && len(form.Encode()) > 16<<10 {
			return
		}
		location := w.Header().Get("Location")
		to, err := base.Parse(location)
		if err != nil || w.Code != http.StatusSeeOther || to.Host != base.Host || to.Scheme != base.Scheme || to.User != nil {
			t.Fatalf("%q leads to %q: %v", next, location, err)
		}
		if !strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//") || strings.ContainsAny(location, "\\\r\n\t\x00") {
			t.Errorf("%q leads to %q", next, location)
		}
	})
}

// FuzzCookie: no cookie is taken for a session or ends one.
func FuzzCookie(f *testing.F) {
	e := &env{t: f, clock: &signintest.Clock{}, audit: &audit{}, log: newLog()}
	e.serve(&http.Transport{DisableKeepAlives: true})
	e.post(e.browser, "/sign-in/key", url.Values{"key": {ownerKey}})
	for _, seed := range []string{"piped-session=", "piped-session=a.b", "piped-session=.", "__Host-piped-session=x.y", `piped-session="a"`, "piped-session=\xff.\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cookie string) {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/sign-out", nil)
		r.Header.Set("Cookie", cookie)
		if _, ok := e.sessions.Find(e.handler.Token(r)); ok {
			t.Errorf("%q is a session", cookie)
		}
		w := newRecorder()
		e.clock.Advance(time.Second)
		e.handler.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther || e.sessions.Count() != 1 {
			t.Errorf("%q: sign-out answers %d, %d sessions are open", cookie, w.Code, e.sessions.Count())
		}
	})
}
