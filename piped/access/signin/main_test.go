package signin_test

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const externalURL = "https://piped.example.com"

// newIssuers returns issuers, and the clock by which they verify tokens.
func newIssuers(t testing.TB, transport http.RoundTripper, configured ...config.Issuer) (*signin.Issuers, *signintest.Clock) {
	t.Helper()
	clock := &signintest.Clock{}
	issuers := signin.NewIssuers(signin.Options{Transport: transport, Now: clock.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err := issuers.Set(config.Access{ExternalURL: externalURL, Issuers: configured}); err != nil {
		t.Fatal(err)
	}
	return issuers, clock
}

// open returns the issuer "staff" of a provider.
func open(t testing.TB, p *signintest.Provider, change func(*config.Issuer)) (signin.Issuer, *signintest.Clock) {
	t.Helper()
	c := p.Config(t, "staff")
	if change != nil {
		change(&c)
	}
	issuers, clock := newIssuers(t, p.Transport(), c)
	return issuers.All()[0], clock
}

// authorize sends a browser to an issuer and returns the attempt and the callback's query.
func authorize(t testing.TB, transport http.RoundTripper, issuer signin.Issuer) (signin.Attempt, url.Values) {
	t.Helper()
	attempt, err := signin.NewAttempt(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	target, err := issuer.AuthURL(t.Context(), attempt)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(request(t, target))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("the issuer answers with %s", resp.Status)
	}
	if got, want := back.Scheme+"://"+back.Host+back.Path, externalURL+"/sign-in/"+issuer.Name()+"/callback"; got != want {
		t.Errorf("the issuer sends users back to %s, want %s", got, want)
	}
	if back.Query().Get("state") != attempt.State {
		t.Errorf("the callback has state %q, want that of the attempt", back.Query().Get("state"))
	}
	return attempt, back.Query()
}

func request(t testing.TB, target string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// signInAt signs the user of a provider in.
func signInAt(t testing.TB, p *signintest.Provider, issuer signin.Issuer) (signin.Identity, error) {
	t.Helper()
	attempt, callback := authorize(t, p.Transport(), issuer)
	return issuer.Finish(t.Context(), attempt, callback)
}
