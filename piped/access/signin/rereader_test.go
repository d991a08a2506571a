package signin_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// interval is that of the tests' rereaders.
const interval = 15 * time.Minute

// rereadEnv is a session of an issuer's user, and what reads its groups again.
type rereadEnv struct {
	rereader *signin.Rereader
	sessions *signintest.Sessions
	clock    *signintest.Clock
	token    string
	log      *bytes.Buffer
}

func newRereadEnv(t *testing.T, issuers *signin.Issuers, clock *signintest.Clock, got signin.Identity) *rereadEnv {
	t.Helper()
	e := &rereadEnv{sessions: signintest.NewSessions(clock.Now), clock: clock, log: &bytes.Buffer{}}
	e.rereader = &signin.Rereader{
		Sessions: e.sessions, Issuers: issuers, Interval: func() time.Duration { return interval }, Now: clock.Now,
		Logger: slog.New(slog.NewTextHandler(e.log, nil)),
	}
	e.token = e.open(t, got)
	return e
}

func (e *rereadEnv) open(t *testing.T, got signin.Identity) (token string) {
	t.Helper()
	token, _, err := e.sessions.Open(t.Context(), deploy.Session{User: got.User, Refresh: got.Refresh})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// after lets time pass, and reads groups.
func (e *rereadEnv) after(t *testing.T, d time.Duration) {
	t.Helper()
	e.clock.Advance(d)
	if err := e.rereader.Pass(t.Context()); err != nil {
		t.Error(err)
	}
}

// oidcEnv signs the user of a provider in.
func oidcEnv(t *testing.T) (*rereadEnv, *signintest.Provider, *signin.Issuers) {
	t.Helper()
	p := signintest.NewProvider(t)
	issuers, clock := newIssuers(t, p.Transport(), p.Config(t, "staff"))
	got, err := signInAt(t, p, issuers.All()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"iat", "exp"} { // the agent's clock runs ahead in these tests
		p.SetClaim(name, map[string]any{"iat": time.Now().Unix(), "exp": time.Now().Add(100 * time.Hour).Unix()}[name])
	}
	return newRereadEnv(t, issuers, clock, got), p, issuers
}

func (e *rereadEnv) groups(t *testing.T) []string {
	t.Helper()
	s, ok := e.sessions.Find(e.token)
	if !ok {
		t.Fatal("the session has ended")
	}
	return s.User.Groups
}

func TestChangedGroupsArePickedUp(t *testing.T) {
	e, p, _ := oidcEnv(t)
	p.SetClaim("groups", []string{"search"})
	e.after(t, interval-time.Minute)
	if diff := cmp.Diff([]string{"payments"}, e.groups(t)); diff != "" {
		t.Errorf("before the interval: -want +got:\n%s", diff)
	}
	e.after(t, 2*time.Minute)
	if diff := cmp.Diff([]string{"search"}, e.groups(t)); diff != "" {
		t.Errorf("after the interval: -want +got:\n%s", diff)
	}
	p.SetClaim("groups", nil)
	e.after(t, interval+time.Minute) // with the token that replaced the first one
	if got := e.groups(t); len(got) > 0 {
		t.Errorf("a user who left all groups still has %q", got)
	}
	if got := p.Requests("refresh_token"); got != 2 {
		t.Errorf("the issuer was asked %d times, want 2", got)
	}
}

// TestRefusedRefreshEndsTheSession: the issuer answers invalid_grant.
func TestRefusedRefreshEndsTheSession(t *testing.T) {
	e, p, _ := oidcEnv(t)
	p.Revoke()
	e.after(t, interval+time.Second)
	if _, ok := e.sessions.Find(e.token); ok {
		t.Error("the session is still open")
	}
	if text := e.log.String(); !strings.Contains(text, "invalid_grant") || strings.Contains(text, "hunter2") {
		t.Errorf("the log says: %s", text)
	}
}

func TestUserWhoIsRefusedAgainLosesTheSession(t *testing.T) {
	e, p, _ := oidcEnv(t)
	p.SetClaim("email_verified", false)
	e.after(t, interval+time.Second)
	if _, ok := e.sessions.Find(e.token); ok {
		t.Error("the session is still open")
	}
}

// TestUnreachableIssuerKeepsSessionsForADay: the groups stay, but not forever.
func TestUnreachableIssuerKeepsSessionsForADay(t *testing.T) {
	e, p, _ := oidcEnv(t)
	p.SetDown(true)
	e.after(t, 23*time.Hour)
	if diff := cmp.Diff([]string{"payments"}, e.groups(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.SetDown(false)
	e.after(t, time.Minute)
	p.SetDown(true)
	e.after(t, 23*time.Hour) // the bound counts from the last answer
	e.groups(t)
	e.after(t, time.Hour+time.Minute)
	if _, ok := e.sessions.Find(e.token); ok {
		t.Error("the session is open after a day without an answer")
	}
}

// TestUntrustedAnswerIsNoRefusal: an issuer that answers wrongly ends no session at once, and
// its refresh token, which was replaced, is not lost.
func TestUntrustedAnswerIsNoRefusal(t *testing.T) {
	e, p, _ := oidcEnv(t)
	p.SetClaim("iss", "https://evil.example.com")
	p.SetClaim("groups", []string{"admin"})
	e.after(t, interval+time.Second)
	if diff := cmp.Diff([]string{"payments"}, e.groups(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.SetClaim("iss", p.Addr())
	p.SetClaim("groups", []string{"search"})
	e.after(t, time.Minute)
	if diff := cmp.Diff([]string{"search"}, e.groups(t)); diff != "" {
		t.Errorf("after the issuer answers rightly: -want +got:\n%s", diff)
	}
}

func TestSessionsOfRemovedIssuersEnd(t *testing.T) {
	e, _, issuers := oidcEnv(t)
	if err := issuers.Set(config.Access{ExternalURL: externalURL}); err != nil {
		t.Fatal(err)
	}
	e.after(t, interval+time.Second)
	if _, ok := e.sessions.Find(e.token); ok {
		t.Error("the session is still open")
	}
}

// TestSessionsWithoutTokenEndAfterADay, and do not keep the groups of others from being read.
func TestSessionsWithoutTokenEndAfterADay(t *testing.T) {
	e, p, _ := oidcEnv(t)
	var without []string
	for range 5 {
		without = append(without, e.open(t, signin.Identity{User: deploy.User{Issuer: "staff", Subject: "bob@example.com"}}))
	}
	p.SetClaim("groups", []string{"search"})
	e.after(t, interval+time.Second)
	if diff := cmp.Diff([]string{"search"}, e.groups(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := e.sessions.Count(); got != 6 {
		t.Errorf("%d sessions are open, want 6", got)
	}
	e.after(t, 24*time.Hour)
	for _, token := range without {
		if _, ok := e.sessions.Find(token); ok {
			t.Error("a session without a token is open after a day")
		}
	}
	e.groups(t)
}

// TestAllPagesAreRead: more sessions than are read at a time.
func TestAllPagesAreRead(t *testing.T) {
	e, p, issuers := oidcEnv(t)
	for range 120 {
		got, err := signInAt(t, p, issuers.All()[0])
		if err != nil {
			t.Fatal(err)
		}
		e.open(t, got)
	}
	e.after(t, interval+time.Second)
	if got := p.Requests("refresh_token"); got != 121 {
		t.Errorf("%d sessions were read, want 121", got)
	}
}

func TestRevokedGitHubTokenEndsTheSession(t *testing.T) {
	g := signintest.NewGitHub(t)
	transport := &http.Transport{DisableKeepAlives: true}
	issuers, clock := newIssuers(t, transport, g.Config(t, "github"))
	got, err := gitHubSignIn(t, issuers.All()[0], transport)
	if err != nil {
		t.Fatal(err)
	}
	e := newRereadEnv(t, issuers, clock, got)
	g.SetTeams("acme/search")
	e.after(t, interval+time.Second)
	if diff := cmp.Diff([]string{"acme/search"}, e.groups(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	g.Revoke()
	e.after(t, interval+time.Second)
	if _, ok := e.sessions.Find(e.token); ok {
		t.Error("the session is still open")
	}
}

// TestRunsEnd: goleak finds what remains of them.
func TestRunsEnd(t *testing.T) {
	e, _, issuers := oidcEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { issuers.Run(ctx); done <- struct{}{} }()
	go func() { e.rereader.Run(ctx); done <- struct{}{} }()
	cancel()
	<-done
	<-done
}

// silent is a transport to an issuer that does not answer: a request ends with its context.
type silent struct{ asked chan struct{} } // gets a value for each request

// RoundTrip implements http.RoundTripper.
func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRunDoesNotWaitForIssuers: the agent stops although an issuer does not answer. The clock is that
// of a bubble: the request cannot reach its time limit before the end of Run is looked for.
func TestRunDoesNotWaitForIssuers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := silent{make(chan struct{}, 10)}
		issuers, _ := newIssuers(t, issuer, config.Issuer{Name: "staff", Issuer: "https://issuer.example.com", ClientID: "piped"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { issuers.Run(ctx); close(done) }()
		<-issuer.asked
		cancel()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Run waits for the issuer")
			<-done
		}
	})
}

// TestRunNamesIssuersThatAreAway in the log, once, without waiting for a user.
func TestRunNamesIssuersThatAreAway(t *testing.T) {
	p := signintest.NewProvider(t)
	p.SetDown(true)
	logged, log := io.Pipe()
	clock := &signintest.Clock{}
	issuers := signin.NewIssuers(signin.Options{Transport: p.Transport(), Now: clock.Now, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err := issuers.Set(config.Access{Issuers: []config.Issuer{p.Config(t, "staff")}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { issuers.Run(ctx); close(done) }()
	line := make([]byte, 4096)
	n, err := logged.Read(line)
	if text := string(line[:n]); err != nil || !strings.Contains(text, "issuer=staff") || !strings.Contains(text, "users cannot sign in") {
		t.Errorf("the log says %q, %v", text, err)
	}
	if issuers.All()[0].Away() == nil {
		t.Error("the issuer is not away")
	}
	cancel()
	<-done
}
