package signin_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	web "github.com/c785c783/piped/piped/web/signin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownerKey is the API key of the tests.
const ownerKey = "owner.key-hunter2"

// env is an agent's sign-in on a loopback address, and the browser of a user.
type env struct {
	t        testing.TB
	provider *signintest.Provider
	handler  *web.Handler
	server   *httptest.Server
	sessions *signintest.Sessions
	states   *signintest.States
	issuers  *signin.Issuers
	access   config.Access
	external string // as configured
	clock    *signintest.Clock
	audit    *audit
	log      *bytes.Buffer
	browser  *http.Client
}

// keys knows one API key.
type keys struct{}

// FindKey implements web.Keys.
func (keys) FindKey(_ context.Context, key string) (access.Caller, error) {
	if key != ownerKey {
		return access.Caller{}, errors.New("the credentials are not accepted")
	}
	return access.Caller{ID: "owner", Subject: "owner", Role: "admin"}, nil
}

// audit collects records.
type audit struct {
	mu  sync.Mutex
	all []deploy.AuditRecord
}

// AppendAudit implements web.Audit.
func (a *audit) AppendAudit(_ context.Context, records ...deploy.AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, records...)
	return nil
}

// last returns the newest record.
func (a *audit) last() deploy.AuditRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) == 0 {
		return deploy.AuditRecord{}
	}
	return a.all[len(a.all)-1]
}

// lockedBuffer is a log that handlers write concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	*bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// newEnv starts an agent whose users sign in at the provider "staff".
func newEnv(t testing.TB) *env {
	t.Helper()
	e := &env{t: t, provider: signintest.NewProvider(t), clock: &signintest.Clock{}, audit: &audit{}, log: &bytes.Buffer{}}
	e.serve(e.provider.Transport(), e.provider.Config(t, "staff"))
	return e
}

// serve starts the handler with some issuers.
func (e *env) serve(transport http.RoundTripper, configured ...config.Issuer) {
	log := slog.New(slog.NewTextHandler(&lockedBuffer{Buffer: e.log}, nil))
	e.sessions, e.states = signintest.NewSessions(e.clock.Now), signintest.NewStates(e.clock.Now)
	e.issuers = signin.NewIssuers(signin.Options{Transport: transport, Now: e.clock.Now, Logger: log})
	e.handler = web.New(web.Config{
		ExternalURL: func() string { return e.external }, Issuers: e.issuers, Sessions: e.sessions, Keys: keys{}, States: e.states,
		Audit: e.audit, Now: e.clock.Now, Rand: rand.Reader, Logger: log,
	})
	mux := http.NewServeMux()
	for _, pattern := range e.handler.Patterns() {
		mux.Handle(pattern, e.handler)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { // a page that needs a session
		s, ok := e.sessions.Find(e.handler.Token(r))
		if !ok {
			http.Error(w, "not signed in", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "hello "+s.User.Subject)
	})
	e.server = httptest.NewServer(mux)
	e.t.Cleanup(e.server.Close)
	e.external = e.server.URL
	e.access = config.Access{ExternalURL: e.external, Issuers: configured}
	if err := e.issuers.Set(e.access); err != nil {
		e.t.Fatal(err)
	}
	e.browser = e.newBrowser(transport)
}

// newBrowser returns a client with cookies that follows redirects.
func (e *env) newBrowser(transport http.RoundTripper) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return &http.Client{Transport: transport, Jar: jar}
}

// staying returns the browser without its following redirects.
func (e *env) staying() *http.Client {
	c := *e.browser
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// page is a response that was read.
type page struct {
	*http.Response
	text string
}

func (e *env) do(c *http.Client, r *http.Request) page {
	e.t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return page{resp, string(body)}
}

// get requests a path of the agent, or a URL.
func (e *env) get(c *http.Client, target string) page {
	e.t.Helper()
	if strings.HasPrefix(target, "/") {
		target = e.server.URL + target
	}
	r, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.do(c, r)
}

// post sends a form as a page of the agent does.
func (e *env) post(c *http.Client, path string, form url.Values) page {
	e.t.Helper()
	r, err := http.NewRequest(http.MethodPost, e.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return e.do(c, r)
}

// call sends JSON as pipectl does.
func (e *env) call(path, body string) page {
	e.t.Helper()
	r, err := http.NewRequest(http.MethodPost, e.server.URL+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return e.do(&http.Client{Transport: e.browser.Transport}, r)
}

// callbackOf begins an attempt and returns the callback to which the issuer sends the browser.
func (e *env) callbackOf(c *http.Client, path string) string {
	e.t.Helper()
	begun := e.get(c, path)
	if begun.StatusCode != http.StatusSeeOther {
		e.t.Fatalf("%s answers %s: %s", path, begun.Status, begun.text)
	}
	return e.get(c, begun.Header.Get("Location")).Header.Get("Location")
}

var hidden = regexp.MustCompile(`name="ticket" value="([^"]+)"`)

// ticketOf returns the ticket of the page that asks to confirm.
func ticketOf(t testing.TB, p page) string {
	t.Helper()
	m := hidden.FindStringSubmatch(p.text)
	if m == nil {
		t.Fatalf("this page does not ask to confirm: %s\n%s", p.Status, p.text)
	}
	return m[1]
}

// checkLog fails the test if the log or a response shows a secret.
func (e *env) checkLog() {
	e.t.Helper()
	if strings.Contains(e.log.String(), "hunter2") {
		e.t.Errorf("the log shows a secret:\n%s", e.log)
	}
}
