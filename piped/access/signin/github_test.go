package signin_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

func attemptOf(t *testing.T) signin.Attempt {
	t.Helper()
	a, err := signin.NewAttempt(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func isPending(err error) bool { return errors.Is(err, signin.ErrPending) }

// openGitHub returns the issuer "github" of a fake, with a transport that keeps no connections.
func openGitHub(t *testing.T, g *signintest.GitHub, teams ...string) (signin.Issuer, http.RoundTripper) {
	t.Helper()
	c := g.Config(t, "github")
	c.Teams = teams
	transport := &http.Transport{DisableKeepAlives: true}
	issuers, _ := newIssuers(t, transport, c)
	return issuers.All()[0], transport
}

func gitHubSignIn(t *testing.T, issuer signin.Issuer, transport http.RoundTripper) (signin.Identity, error) {
	t.Helper()
	attempt, callback := authorize(t, transport, issuer)
	return issuer.Finish(t.Context(), attempt, callback)
}

func TestGitHubSignIn(t *testing.T) {
	g := signintest.NewGitHub(t)
	issuer, transport := openGitHub(t, g)
	got, err := gitHubSignIn(t, issuer, transport)
	if err != nil {
		t.Fatal(err)
	}
	want := deploy.User{Issuer: "github", Subject: "ann", Name: "Ann", Groups: []string{"acme/payments"}}
	if diff := cmp.Diff(want, got.User); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGitHubReadsEveryPageOfTeams(t *testing.T) {
	g := signintest.NewGitHub(t)
	var teams []string
	for i := range 250 {
		teams = append(teams, fmt.Sprintf("acme/team-%d", i))
	}
	g.SetTeams(teams...)
	issuer, transport := openGitHub(t, g)
	got, err := gitHubSignIn(t, issuer, transport)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(teams, got.User.Groups); diff != "" || g.Pages() != 3 {
		t.Errorf("%d pages were read: -want +got:\n%s", g.Pages(), diff)
	}
}

func TestGitHubTeamsRestrictWhoSignsIn(t *testing.T) {
	g := signintest.NewGitHub(t)
	issuer, transport := openGitHub(t, g, "Acme/Payments", "acme/platform")
	got, err := gitHubSignIn(t, issuer, transport)
	if err != nil {
		t.Fatal(err)
	}
	g.SetTeams("other/payments")
	if _, err := gitHubSignIn(t, issuer, transport); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a user of other teams: %v, want an error of kind denied", err)
	}
	if _, err := issuer.Reread(t.Context(), got.User, got.Refresh); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a user who left the team: %v, want an error of kind denied", err)
	}
}

func TestGitHubCodesAreUsedOnce(t *testing.T) {
	g := signintest.NewGitHub(t)
	issuer, transport := openGitHub(t, g)
	attempt, callback := authorize(t, transport, issuer)
	if _, err := issuer.Finish(t.Context(), attempt, callback); err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Finish(t.Context(), attempt, callback); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a replayed code: %v", err)
	}
	_, callback = authorize(t, transport, issuer)
	if _, err := issuer.Finish(t.Context(), attempt, callback); !deploy.IsKind(err, deploy.Denied) {
		t.Errorf("a code of another attempt: %v", err)
	}
}

func TestGitHubReread(t *testing.T) {
	g := signintest.NewGitHub(t)
	issuer, transport := openGitHub(t, g)
	got, err := gitHubSignIn(t, issuer, transport)
	if err != nil {
		t.Fatal(err)
	}
	g.SetTeams("acme/search")
	again, err := issuer.Reread(t.Context(), got.User, got.Refresh)
	if err != nil || !cmp.Equal(again.User.Groups, []string{"acme/search"}) {
		t.Fatalf("got %+v, %v", again.User, err)
	}
	for _, c := range []struct {
		name   string
		change func()
		want   deploy.Kind
	}{
		{"GitHub is down", func() { g.SetStatus(http.StatusBadGateway) }, deploy.Unavailable},
		{"the app may not read the organization", func() { g.SetStatus(http.StatusForbidden) }, deploy.Invalid},
		{"the login was given to another account", func() { g.SetStatus(0); g.SetAccount(43, "ann") }, deploy.Denied},
		{"the user has another login", func() { g.SetAccount(42, "ann-smith") }, deploy.Denied},
		{"the token was revoked", g.Revoke, deploy.Denied},
	} {
		c.change()
		if _, err := issuer.Reread(t.Context(), got.User, got.Refresh); err == nil || deploy.KindOf(err) != c.want {
			t.Errorf("%s: got %v of kind %s, want %s", c.name, err, deploy.KindOf(err), c.want)
		}
	}
}

func TestGitHubDeviceFlow(t *testing.T) {
	g := signintest.NewGitHub(t)
	issuer, _ := openGitHub(t, g)
	d, err := issuer.StartDevice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.PollDevice(t.Context(), d); !isPending(err) {
		t.Errorf("before the user signs in: %v", err)
	}
	g.Approve(d.UserCode)
	if got, err := issuer.PollDevice(t.Context(), d); err != nil || got.User.Subject != "ann" {
		t.Errorf("got %+v, %v", got.User, err)
	}
}

// TestGitHubAddresses are those of GitHub's documentation: of github.com, of an enterprise
// server, and of an enterprise with data residency.
func TestGitHubAddresses(t *testing.T) {
	for api, want := range map[string]string{
		"https://api.github.com":            "https://github.com/login/oauth/authorize?",
		"https://github.example.com/api/v3": "https://github.example.com/login/oauth/authorize?",
		"https://api.acme.ghe.com":          "https://acme.ghe.com/login/oauth/authorize?",
	} {
		issuers, _ := newIssuers(t, http.DefaultTransport, config.Issuer{Name: "github", Type: config.IssuerGitHub, ClientID: "x", APIURL: api})
		got, err := issuers.All()[0].AuthURL(t.Context(), attemptOf(t))
		if err != nil || len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s: got %q, %v, want %q", api, got, err, want)
		}
	}
}
